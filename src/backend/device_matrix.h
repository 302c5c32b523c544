// DeviceMatrix: matrices of a model file, stacked by rows, on a CUDA device in the layout
// of kernels/cuda/weight_format.h.
//
// Neighbours in the stack that lie in one device type form one segment, so that they are
// one product; q, k and v of a file with mixed types become several.
//
// Thread rule: the backend's; Load packs on all workers of the pool.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/device.h"
#include "backend/device_memory.h"
#include "backend/thread_pool.h"
#include "backend/weight_uploader.h"
#include "kernels/cuda/weight_format.h"
#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

class DeviceMatrix {
 public:
  struct Segment {
    cuda::DeviceWeightType type{};
    const uint8_t* data = nullptr;  // On the device.
    int32_t rows = 0;
    int32_t first_row = 0;  // In the stack.
  };

  // Returns when all of the matrix has been packed; its last pieces may still be on their
  // way, in the order of the uploader's stream. Errors name the tensor.
  static StatusOr<DeviceMatrix> Load(std::span<const TensorView> stacked,
                                     WeightUploader& uploader, DeviceArena& arena,
                                     ThreadPool& pool);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  const std::vector<Segment>& segments() const { return segments_; }

 private:
  Status LoadSegment(std::span<const TensorView> views, WeightUploader& uploader,
                     DeviceArena& arena, ThreadPool& pool);

  int64_t rows_ = 0;
  int64_t cols_ = 0;
  std::vector<Segment> segments_;
};

}  // namespace renga
