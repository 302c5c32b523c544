// FairTurns: deficit round robin, that is whose turn it is among tenants whose requests
// cost different amounts.
//
// The tenants stand in a ring. The one in front has the turn: it is given `quantum` once
// and served while what it has saved up pays for its next request; then the turn passes
// on, and what is left stays with it. A request that costs more than the quantum is thus
// paid for over several rounds and never starves. Rounds in which nobody could be served
// are not walked through one by one: a call costs one pass over the ring.
//
// A tenant that has nothing to be served is forgotten, savings and all. While a tenant
// has something but no claim on this very turn, it is passed over, gets nothing and keeps
// what it has.
//
// What that promises: between two tenants that always have a claim, what was served
// differs by at most a quantum and the cost of one request, however long it runs.
//
// Thread safety: none; its owner's thread. Allocates only when the ring grows beyond what
// it was.
// Invariant: savings are never negative, and below the largest cost that the tenant has
// claimed plus a quantum.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace renga {

class FairTurns {
 public:
  // Instead of a cost, see Next.
  static constexpr int64_t kAbsent = 0;    // Nothing to be served: forget the tenant.
  static constexpr int64_t kNoClaim = -1;  // Something, but not now.

  explicit FairTurns(int64_t quantum);

  // `tenant`, a small index, goes to the back of the ring with nothing saved up, unless
  // it stands there already.
  void Join(int32_t tenant);
  void Forget(int32_t tenant);

  // Who is served next; its savings have paid. `costs` has one entry for every tenant of
  // the ring, by index: what its next request costs (at most 2^40), kNoClaim or kAbsent.
  // -1: nobody has a claim.
  int32_t Next(std::span<const int64_t> costs);

  int64_t size() const { return static_cast<int64_t>(ring_.size()); }

 private:
  static constexpr int64_t kOutside = -1;

  // The round, from 0, in which the tenant at `place` of the ring can pay `cost`.
  int64_t RoundOf(size_t place, int64_t cost) const;
  int64_t& saved(int32_t tenant) { return saved_[static_cast<size_t>(tenant)]; }
  int64_t saved(int32_t tenant) const { return saved_[static_cast<size_t>(tenant)]; }

  const int64_t quantum_;
  std::vector<int32_t> ring_;   // Whose turn it is stands in front.
  std::vector<int64_t> saved_;  // By tenant; kOutside: not in the ring.
  bool given_ = false;          // The front has its quantum of this turn.
};

}  // namespace renga
