// What the machine could do at most: int8 dot products, float multiply-adds, and reading
// memory, each by the instructions of one op table.
//
// Thread rule: one thread calls; nothing else should run meanwhile.

#pragma once

#include <cstdint>
#include <string>

namespace renga {

// 1e9 multiply-adds of int8 per second, `threads` threads together, in the widest
// instructions that the table `isa` uses. 0: it has none (portable).
double PeakInt8Gmacs(const std::string& isa, int threads);

// The same of float.
double PeakFloatGmacs(const std::string& isa, int threads);

// GB/s that `threads` threads read together from `bytes` of memory, again and again: from
// the caches if it fits them.
double ReadBandwidth(int64_t bytes, int threads);

}  // namespace renga
