#include "tests/cuda/product_cases.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>

#include "kernels/cuda/weight_format.h"

namespace renga::test {

namespace {

constexpr int32_t kRowsBehind = 3;     // Of x and out, not to be touched.
constexpr int32_t kOutputsBehind = 5;  // Of a row of out.
constexpr uint32_t kUntouched = 0xFFFFFFFFu;

// Relative to the norm of the result. Measured under the emulator, whose mma rounds once
// for 16 k: 9e-8 and 3e-4 (2.3e-3 for a single output whose terms cancel). The mma of a
// GPU truncates, a hundred times in a part of a long k; whatever is not rounding is above
// 1e-3.
constexpr double kSumBound = 2e-5;
constexpr double kExactBound = 3e-3;

constexpr WeightType kTypes[] = {WeightType::kF32,  WeightType::kF16,  WeightType::kBf16,
                                 WeightType::kQ8_0, WeightType::kQ4_1, WeightType::kQ4_0,
                                 WeightType::kQ4_K};

std::string Name(const char* op, WeightType type,
                 std::initializer_list<int32_t> numbers) {
  std::string name = std::string(op) + "/" + WeightName(type);
  for (const int32_t number : numbers) name += "/" + std::to_string(number);
  return name;
}

CheckResult Result(std::string name, double error, double bound,
                   std::string detail = {}) {
  const bool ok = error <= bound && detail.empty();
  return {.name = std::move(name),
          .error = error,
          .bound = bound,
          .ok = ok,
          .detail = std::move(detail)};
}

// Results [rows][outputs / step] in double precision, from the f16 or the exact weights.
std::vector<double> Reference(const ProductRig& rig, const ProductRig::Run& run,
                              bool exact, int32_t step) {
  const std::vector<double>& w = exact ? rig.weights().exact : rig.weights().half;
  std::vector<double> wanted;
  for (int32_t row = 0; row < run.rows; ++row) {
    for (int32_t output = 0; output < rig.outputs(); output += step) {
      double sum = 0.0;
      for (int32_t k = 0; k < rig.cols(); ++k) {
        sum += rig.X(run.first_row + row, k) *
               w[static_cast<size_t>(int64_t{output} * rig.cols() + k)];
      }
      wanted.push_back(run.add ? sum + static_cast<double>(rig.Added(row, output)) : sum);
    }
  }
  return wanted;
}

std::vector<double> EveryOutput(const std::vector<float>& got, int32_t outputs,
                                int32_t step) {
  std::vector<double> values;
  for (size_t i = 0; i < got.size(); ++i) {
    if (static_cast<int32_t>(i) % outputs % step == 0) {
      values.push_back(static_cast<double>(got[i]));
    }
  }
  return values;
}

// A launch for so many rows runs ProductLarge with squares of 128.
int32_t RowsForLargeSquares(int32_t outputs) {
  return cuda::DivideUp(96, cuda::DivideUp(outputs, 128)) * 128;
}

// Checks of one weight.
class ProductChecks {
 public:
  ProductChecks(Device& device, WeightType type, int32_t outputs, int32_t cols,
                int32_t rows, int32_t step)
      : rig_(device, type, outputs, cols, rows),
        step_(step),
        alone_(static_cast<size_t>(rows)) {}

  void Check(const ProductRig::Run& run, CheckResults* results) {
    const std::vector<float> got = rig_.Multiply(run);
    const std::vector<double> values = EveryOutput(got, rig_.outputs(), step_);
    const std::string name =
        Name("product", rig_.weights().type,
             {rig_.outputs(), rig_.cols(), run.rows, run.most_rows}) +
        (run.add ? "/add" : "");
    const double error = RelativeError(values, Reference(rig_, run, false, step_));
    results->push_back(Result(name, error, kSumBound, Memory()));
    const double exact = RelativeError(values, Reference(rig_, run, true, step_));
    results->push_back(Result(name + "/exact", exact, kExactBound));
    if (run.add) return;
    results->push_back(Result(name + "/bits", Bits(run, got), 0.0, Memory()));
  }

 private:
  std::string Memory() const { return rig_.wrong(); }

  // How many outputs of some of the rows differ from those of the row alone.
  double Bits(const ProductRig::Run& run, const std::vector<float>& got) {
    int64_t differ = 0;
    const auto outputs = static_cast<size_t>(rig_.outputs());
    for (const int32_t row : {0, 1, 6, 7, 8, 15, 16, 31, 32, 63, 64, 69}) {
      if (row >= run.rows) break;
      std::vector<float>& alone = alone_[static_cast<size_t>(row)];
      if (alone.empty()) alone = rig_.Multiply({.first_row = row});
      for (size_t i = 0; i < outputs; ++i) {
        const float value = got[static_cast<size_t>(row) * outputs + i];
        differ += std::bit_cast<uint32_t>(value) != std::bit_cast<uint32_t>(alone[i]);
      }
    }
    return static_cast<double>(differ);
  }

  ProductRig rig_;
  int32_t step_;
  std::vector<std::vector<float>> alone_;  // By row; made when needed.
};

void CheckSmall(Device& device, WeightType type, CheckResults* results) {
  const bool quantised = IsQuantised(type);
  const bool super = type == WeightType::kQ4_K;
  struct Shape {
    int32_t outputs, cols;
  };
  // Ragged outputs; k of one run, of part of one, of fewer and of more runs than parts.
  const int32_t ragged = super ? 512 : quantised ? 96 : 104;
  const Shape shapes[] = {{1, super ? 256 : 64},
                          {16, ragged},
                          {40, super ? 768 : 320},
                          {130, super ? 1280 : 576},
                          {48, 1536}};
  // Types that share their packed form with one that has all cases.
  const bool twin = type == WeightType::kF32 || type == WeightType::kQ4_0;
  for (const Shape& shape : shapes) {
    const bool all = shape.outputs == 40;
    if (twin && !all) continue;
    ProductChecks checks(device, type, shape.outputs, shape.cols, 70, 1);
    const int32_t squares = RowsForLargeSquares(shape.outputs);
    // On both sides of what each kernel is for.
    for (const int32_t rows : {1, 2, 4, 5, 7, 8, 9, 16, 17, 33, 70}) {
      if (!all && rows != 1 && rows != 7 && rows != 9 && rows != 70) continue;
      checks.Check({.rows = rows, .most_rows = rows}, results);
    }
    // Kernels for more rows than there are.
    for (const int32_t most : {4, 8, 16, 64, squares}) {
      checks.Check({.rows = 3, .most_rows = most, .add = all}, results);
    }
    checks.Check({.rows = 70, .most_rows = squares}, results);
    if (all) checks.Check({.rows = 70, .most_rows = squares, .add = true}, results);
  }
}

void CheckLarge(Device& device, WeightType type, CheckResults* results) {
  // A wide one has long parts; one type shows them.
  for (const int32_t cols : {4096, 14336}) {
    if (cols > 4096 && type != WeightType::kQ4_1) continue;
    ProductChecks checks(device, type, 2048, cols, 1500, 61);
    for (const int32_t rows : {1, 4, 8, 16, 40, 1500}) {
      checks.Check({.rows = rows, .most_rows = rows}, results);
    }
  }
}

}  // namespace

std::vector<uint8_t> PackedWeights(const FileWeights& w) {
  const int64_t bytes =
      cuda::DeviceWeightBytes(cuda::DeviceTypeOf(w.type), w.rows, w.cols);
  std::vector<uint8_t> packed(static_cast<size_t>(bytes));
  const bool fits = cuda::PackDeviceWeight({.type = w.type,
                                            .file = w.file.data(),
                                            .rows = w.rows,
                                            .cols = w.cols,
                                            .first_row = 0,
                                            .total_rows = w.rows,
                                            .out = packed.data()});
  if (!fits) std::abort();
  return packed;
}

ProductRig::ProductRig(Device& device, WeightType type, int32_t outputs, int32_t cols,
                       int32_t rows)
    : device_(device),
      stream_(Must(device.CreateStream())),
      weights_(RandomFileWeights(type, outputs, cols, 11)),
      outputs_(outputs),
      cols_(cols) {
  const int64_t stride = cuda::PaddedCols(cols);
  x_host_.assign(static_cast<size_t>(rows * stride), 0);
  const std::vector<float> normal = Normal(int64_t{rows} * cols, 12);
  for (int64_t row = 0; row < rows; ++row) {
    uint16_t* to = x_host_.data() + row * stride;
    for (int64_t k = 0; k < cols; ++k) {
      const auto value = static_cast<double>(normal[static_cast<size_t>(row * cols + k)]);
      to[k] = HalfBits(RoundToHalf(value));
    }
  }
  packed_.emplace(device, PackedWeights(weights_), stream_);
  x_.emplace(device, (rows + kRowsBehind) * stride, stream_);
  x_->Upload(x_host_);
}

double ProductRig::X(int32_t row, int32_t col) const {
  const int64_t at = row * cuda::PaddedCols(cols_) + col;
  return static_cast<double>(F16ToF32(x_host_[static_cast<size_t>(at)]));
}

float ProductRig::Added(int32_t row, int32_t output) const {
  return static_cast<float>((row * 7 + output * 3) % 32 - 16) / 8.0f;
}

std::vector<float> ProductRig::OutBefore(const Run& run) const {
  const int64_t stride = outputs_ + kOutputsBehind;
  std::vector<float> out(static_cast<size_t>((run.rows + kRowsBehind) * stride),
                         std::bit_cast<float>(kUntouched));
  for (int32_t row = 0; run.add && row < run.rows; ++row) {
    for (int32_t output = 0; output < outputs_; ++output) {
      out[static_cast<size_t>(row * stride + output)] = Added(row, output);
    }
  }
  return out;
}

std::vector<float> ProductRig::Multiply(const Run& run) {
  const int64_t stride = outputs_ + kOutputsBehind;
  const std::vector<float> before = OutBefore(run);
  DeviceBuffer<float> out(device_, static_cast<int64_t>(before.size()), stream_);
  if (run.add) out.Upload(before);
  const DeviceBuffer<int32_t> count(device_, std::vector<int32_t>{run.rows}, stream_);
  const cuda::ProductArgs args{.weights = packed_->data(),
                               .x = x_->data() + run.first_row * cuda::PaddedCols(cols_),
                               .out = out.data(),
                               .rows = count.data(),
                               .x_stride = cuda::PaddedCols(cols_),
                               .out_stride = stride,
                               .outputs = outputs_,
                               .cols = cols_,
                               .add = run.add ? 1 : 0};
  const cuda::DeviceWeightType type = cuda::DeviceTypeOf(weights_.type);
  Must(device_.Launch(cuda::ProductLaunch(type, args, run.most_rows), args, stream_));
  const std::vector<float> all = out.Download();
  std::vector<float> got;
  for (int64_t i = 0; i < static_cast<int64_t>(all.size()); ++i) {
    const float value = all[static_cast<size_t>(i)];
    const bool inside = i / stride < run.rows && i % stride < outputs_;
    if (inside) got.push_back(value);
    if (!inside && std::bit_cast<uint32_t>(value) != kUntouched && wrong_.empty()) {
      wrong_ = "row " + std::to_string(i / stride) + " output " +
               std::to_string(i % stride) + " was written";
    }
  }
  if (!out.GuardsIntact() || !x_->GuardsIntact() || !packed_->GuardsIntact()) {
    wrong_ = "a guard was written";
  }
  return got;
}

CheckResults CheckProduct(Device& device, CheckSize size) {
  CheckResults results;
  for (const WeightType type : kTypes) {
    if (size == CheckSize::kSmall) {
      CheckSmall(device, type, &results);
    } else {
      CheckLarge(device, type, &results);
    }
  }
  return results;
}

namespace {

// Rows of a vocabulary, a token twice, two that do not exist.
CheckResult EmbedResult(Device& device, WeightType type, int32_t vocab, int32_t dim) {
  const StreamId stream = Must(device.CreateStream());
  const FileWeights w = RandomFileWeights(type, vocab, dim, 21);
  const std::vector<int32_t> tokens = {vocab - 1, 9, vocab / 2, 9, 31, vocab, -1, 1, 2};
  constexpr int32_t kRows = 7;  // The last two tokens are behind them.
  const DeviceBuffer<uint8_t> packed(device, PackedWeights(w), stream);
  const DeviceBuffer<int32_t> ids(device, tokens, stream);
  const DeviceBuffer<int32_t> rows(device, std::vector<int32_t>{kRows}, stream);
  const DeviceBuffer<float> x(device, static_cast<int64_t>(tokens.size()) * dim, stream);
  const cuda::EmbedArgs args{.weights = packed.data(),
                             .tokens = ids.data(),
                             .rows = rows.data(),
                             .x = x.data(),
                             .vocab = vocab,
                             .dim = dim};
  const auto most = static_cast<int32_t>(tokens.size());
  Must(device.Launch(cuda::EmbedLaunch(cuda::DeviceTypeOf(type), args, most), args,
                     stream));
  const std::vector<float> got = x.Download();
  int64_t wrong = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(got.size()); ++i) {
    const float value = got[static_cast<size_t>(i)];
    const int32_t token = tokens[static_cast<size_t>(i / dim)];
    if (i / dim >= kRows) {
      wrong += std::bit_cast<uint32_t>(value) != kUntouched;
    } else if (token < 0 || token >= vocab) {
      wrong += !std::isnan(value);
    } else {
      const double wanted =
          IsQuantised(type) ? w.Exact(token, i % dim) : w.Half(token, i % dim);
      wrong += value != static_cast<float>(wanted);
    }
  }
  return Result(Name("embed", type, {vocab, dim}), static_cast<double>(wrong), 0.0,
                x.GuardsIntact() ? "" : "a guard was written");
}

CheckResult DequantiseResult(Device& device, WeightType type, int32_t outputs,
                             int32_t cols) {
  const StreamId stream = Must(device.CreateStream());
  const FileWeights w = RandomFileWeights(type, outputs, cols, 31);
  const int64_t stride = cuda::PaddedCols(cols);
  const DeviceBuffer<uint8_t> packed(device, PackedWeights(w), stream);
  const DeviceBuffer<uint16_t> out(device, outputs * stride, stream);
  const cuda::DequantiseArgs args{
      .weights = packed.data(), .out = out.data(), .outputs = outputs, .cols = cols};
  Must(device.Launch(cuda::DequantiseLaunch(cuda::DeviceTypeOf(type), args), args,
                     stream));
  const std::vector<uint16_t> got = out.Download();
  int64_t wrong = 0;
  for (int64_t i = 0; i < outputs * stride; ++i) {
    const int64_t col = i % stride;
    const uint16_t bits = got[static_cast<size_t>(i)];
    if (col >= cols) {
      wrong += bits != 0;
    } else {
      wrong += static_cast<double>(F16ToF32(bits)) != w.Half(i / stride, col);
    }
  }
  return Result(Name("dequantise", type, {outputs, cols}), static_cast<double>(wrong),
                0.0, out.GuardsIntact() ? "" : "a guard was written");
}

// A width that is no multiple of a run where the type allows it.
int32_t RaggedCols(WeightType type) {
  if (type == WeightType::kQ4_K) return 768;
  return IsQuantised(type) ? 352 : 328;
}

}  // namespace

CheckResults CheckEmbed(Device& device, CheckSize size) {
  CheckResults results;
  for (const WeightType type : kTypes) {
    results.push_back(EmbedResult(device, type, 37, RaggedCols(type)));
    if (size == CheckSize::kLarge) {
      results.push_back(EmbedResult(device, type, 4000, 4096));
    }
  }
  return results;
}

CheckResults CheckDequantise(Device& device, CheckSize size) {
  CheckResults results;
  for (const WeightType type : kTypes) {
    results.push_back(DequantiseResult(device, type, 37, RaggedCols(type)));
    if (size == CheckSize::kLarge) {
      results.push_back(DequantiseResult(device, type, 4096, 4096));
    }
  }
  return results;
}

}  // namespace renga::test
