// What the lanes of a warp touched, put together to instructions of the warp and counted:
// requests, sectors, passes through the banks.
//
// Thread safety: none.

#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tests/simt/shared_memory.h"
#include "tests/simt/simt.h"
#include "tests/simt/simt_memory.h"

namespace renga::test {

struct TraceEntry {
  const void* site = nullptr;  // The instruction's address.
  const char* at = nullptr;
  int32_t bytes = 0;
  Access access = Access::kRead;
  bool shared = false;
};

class TraceCounter {
 public:
  static constexpr int kLanes = 32;
  using LaneTrace = std::vector<TraceEntry>;

  explicit TraceCounter(SimtMemory& memory) : memory_(memory) {}

  // Counts and empties the traces of a warp whose lanes have all stopped. Lanes with the
  // same instruction next go together; of several, the one that comes first in the code.
  void Flush(LaneTrace* const (&lanes)[kLanes]);
  // One ldmatrix.x4: rows of 16 bytes, 8 in a pass.
  void LoadMatrix(const char* const (&rows)[kLanes]);

  // The counters, but steps, products and distinct sectors. Names are looked up now.
  void AddTo(SimtCounters& counters) const;

 private:
  void Count(const TraceEntry* const* entries, int count);
  void CountGlobal(const TraceEntry* const* entries, int count);
  void CountShared(const TraceEntry* const* entries, int count, int lanes_of_pass);
  void CountPass(const TraceEntry* const* entries, int count);

  SimtMemory& memory_;
  std::unordered_map<const SimtBuffer*, BufferTraffic> buffers_;
  int64_t shared_requests_ = 0;
  int64_t wavefronts_ = 0;
  int64_t ideal_wavefronts_ = 0;
};

}  // namespace renga::test
