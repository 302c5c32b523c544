// Two short measurements from which speed can be predicted: how fast all threads together
// read memory, and how fast the device multiplies.
//
// Thread rule: one thread calls; nothing else should run meanwhile.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "renga/backend.h"
#include "renga/status.h"
#include "renga/types.h"

namespace renga {

// Bytes per second that `threads` threads read from memory together, for about `time`;
// `bytes` of it, to be larger than the caches. 0: there is no such memory.
double MeasureReadBandwidth(int32_t threads, int64_t bytes, Duration time);

// The matrices of one layer's MLP as a file has them.
struct ProbeLayer {
  std::array<TensorView, 2> gate_up;  // [ffn, dim] each
  std::array<TensorView, 1> down;     // [dim, ffn]
};

// Random 4-bit weights of a middling model.
class MadeUpLayer {
 public:
  MadeUpLayer();
  ProbeLayer views() const;

 private:
  std::vector<std::byte> gate_;
  std::vector<std::byte> up_;
  std::vector<std::byte> down_;
};

// Multiply-adds per second of `backend`, which is fresh and of no use afterwards, in the
// MLP of a long prompt; for about `time`.
StatusOr<double> MeasureProducts(Backend& backend, const ProbeLayer& layer,
                                 Duration time);

}  // namespace renga
