// PackedMatrix: a weight matrix in the kernels' panels.
//
// Matrices stacked by rows are kept as segments: each starts at a panel of its own, so
// they may differ in type and need not have a multiple of 32 rows. The outputs of a
// product are numbered through all segments without gaps.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/thread_pool.h"
#include "base/aligned_buffer.h"
#include "kernels/ops.h"
#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

class PackedMatrix {
 public:
  struct Segment {
    WeightType type = WeightType::kF32;  // Of the panels.
    int64_t rows = 0;
    int64_t first_row = 0;    // Of the stacked matrix.
    int64_t first_panel = 0;  // Counted through all segments.
    int64_t panels = 0;
    int64_t panel_bytes = 0;
    const uint8_t* data = nullptr;  // [panels][panel_bytes]
  };

  // Checks shapes and repacks, on the pool's workers. No view is kept.
  static StatusOr<PackedMatrix> Pack(std::span<const TensorView> stacked,
                                     ThreadPool& pool);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t panels() const { return panels_; }
  std::span<const Segment> segments() const { return segments_; }
  bool any_quantised() const { return any_quantised_; }
  bool any_float() const { return any_float_; }

  // out[0..cols) = row `row`, dequantised. REQUIRES: 0 <= row < rows().
  void UnpackRow(int64_t row, float* out) const;

 private:
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  int64_t panels_ = 0;
  bool any_quantised_ = false;
  bool any_float_ = false;
  std::vector<Segment> segments_;
  AlignedBuffer data_;
};

}  // namespace renga
