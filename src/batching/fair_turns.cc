#include "batching/fair_turns.h"

#include <algorithm>
#include <limits>

namespace renga {

FairTurns::FairTurns(int64_t quantum) : quantum_(std::max<int64_t>(1, quantum)) {}

void FairTurns::Join(int32_t tenant) {
  if (static_cast<size_t>(tenant) >= saved_.size()) {
    saved_.resize(static_cast<size_t>(tenant) + 1, kOutside);
  }
  if (saved(tenant) != kOutside) return;
  saved(tenant) = 0;
  ring_.push_back(tenant);
}

void FairTurns::Forget(int32_t tenant) {
  if (static_cast<size_t>(tenant) >= saved_.size() || saved(tenant) == kOutside) return;
  if (ring_.front() == tenant) given_ = false;
  saved(tenant) = kOutside;
  ring_.erase(std::find(ring_.begin(), ring_.end(), tenant));
}

int64_t FairTurns::RoundOf(size_t place, int64_t cost) const {
  const int64_t missing = std::max<int64_t>(0, cost - saved(ring_[place]));
  const int64_t quanta = (missing + quantum_ - 1) / quantum_;
  if (place == 0 && given_) return quanta;
  return std::max<int64_t>(1, quanta) - 1;  // The visit of round 0 brings the first.
}

int32_t FairTurns::Next(std::span<const int64_t> costs) {
  const auto cost_of = [costs](int32_t tenant) {
    return costs[static_cast<size_t>(tenant)];
  };
  if (!ring_.empty() && cost_of(ring_.front()) == kAbsent) given_ = false;
  std::erase_if(ring_, [&](int32_t tenant) {
    if (cost_of(tenant) != kAbsent) return false;
    saved(tenant) = kOutside;
    return true;
  });

  size_t served = ring_.size();
  int64_t rounds = std::numeric_limits<int64_t>::max();
  for (size_t place = 0; place < ring_.size(); ++place) {
    const int64_t cost = cost_of(ring_[place]);
    if (cost == kNoClaim) continue;
    const int64_t round = RoundOf(place, cost);
    if (round >= rounds) continue;
    rounds = round;
    served = place;
  }
  if (served == ring_.size()) return -1;

  // Everybody has been visited in each round before; in this one those up to `served`.
  for (size_t place = 0; place < ring_.size(); ++place) {
    if (cost_of(ring_[place]) == kNoClaim) continue;
    const int64_t visits = rounds + (place <= served ? 1 : 0);
    const int64_t had = place == 0 && given_ ? 1 : 0;
    saved(ring_[place]) += quantum_ * (visits - had);
  }
  const int32_t tenant = ring_[served];
  saved(tenant) -= cost_of(tenant);
  std::rotate(ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(served),
              ring_.end());
  given_ = true;
  return tenant;
}

}  // namespace renga
