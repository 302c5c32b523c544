// Checks of the product kernels on any Device, against products in double precision.
//
// A product has two errors. Against the f16 weights that it really multiplies, only f32
// sums are left; against the exact weights of the file, the rounding of a weight to f16
// (at most 2^-11 of it) comes on top. x is f16 in both.
//
// Thread safety: none.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/product.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/device_weights.h"

namespace renga::test {

CheckResults CheckProduct(Device& device, CheckSize size);
CheckResults CheckEmbed(Device& device, CheckSize size);
CheckResults CheckDequantise(Device& device, CheckSize size);

// The packed form of a weight.
std::vector<uint8_t> PackedWeights(const FileWeights& w);

// One weight and its x on a device, to be multiplied with other rows and kernels.
class ProductRig {
 public:
  // x has `rows` rows, and behind them rows of NaN that were never written.
  ProductRig(Device& device, WeightType type, int32_t outputs, int32_t cols,
             int32_t rows);

  struct Run {
    int32_t first_row = 0;  // Of x.
    int32_t rows = 1;
    int32_t most_rows = 1;  // What the launch is made for.
    bool add = false;       // To Added().
  };
  // [rows][outputs]. What is wrong with memory outside of it goes to wrong().
  std::vector<float> Multiply(const Run& run);
  const std::string& wrong() const { return wrong_; }

  double X(int32_t row, int32_t col) const;
  // What `out` held before.
  float Added(int32_t row, int32_t output) const;
  const FileWeights& weights() const { return weights_; }
  int32_t outputs() const { return outputs_; }
  int32_t cols() const { return cols_; }
  const uint8_t* packed() const { return packed_->data(); }
  const uint16_t* x() const { return x_->data(); }

 private:
  std::vector<float> OutBefore(const Run& run) const;

  Device& device_;
  StreamId stream_;
  FileWeights weights_;
  int32_t outputs_;
  int32_t cols_;
  std::vector<uint16_t> x_host_;
  std::optional<DeviceBuffer<uint8_t>> packed_;
  std::optional<DeviceBuffer<uint16_t>> x_;
  std::string wrong_;
};

}  // namespace renga::test
