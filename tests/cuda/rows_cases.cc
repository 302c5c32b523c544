#include "tests/cuda/rows_cases.h"

#include "kernels/cuda/rows.h"
#include "kernels/cuda/weight_format.h"
#include "tests/cuda/compare.h"

namespace renga::test {
namespace {

constexpr double kHalfBound = 5e-4;  // Rounding to f16 alone: 2.1e-4.

// ---- RmsNorm -----------------------------------------------------------------------

struct NormCase {
  int32_t n;
  int32_t rows;
  bool gather;
};

CheckResult CheckNorm(Device& device, StreamId stream, const NormCase& c) {
  const int32_t most_rows = c.rows + 2;
  const int64_t stride = cuda::PaddedCols(c.n);
  const auto x = Normal(int64_t{most_rows} * c.n, 1 + static_cast<uint32_t>(c.n), 3.0f);
  const auto weight = Normal(c.n, 2);
  std::vector<int32_t> source;
  for (int32_t i = 0; i < most_rows; ++i) source.push_back(most_rows - 1 - i);
  const DeviceBuffer<float> x_d(device, x, stream);
  const DeviceBuffer<float> weight_d(device, weight, stream);
  const DeviceBuffer<int32_t> source_d(device, source, stream);
  const DeviceBuffer<int32_t> count_d(device, std::vector<int32_t>{c.rows}, stream);
  const DeviceBuffer<uint16_t> out_d(device, most_rows * stride, stream);
  const cuda::RmsNormArgs args{.x = x_d.data(),
                               .weight = weight_d.data(),
                               .out = out_d.data(),
                               .source = c.gather ? source_d.data() : nullptr,
                               .row_count = count_d.data(),
                               .out_stride = stride,
                               .n = c.n,
                               .eps = 1e-5f};
  Must(device.Launch(cuda::RmsNormLaunch(args, most_rows), args, stream));

  std::vector<double> expected(static_cast<size_t>(most_rows * stride), kUntouched);
  for (int32_t row = 0; row < c.rows; ++row) {
    const float* from = x.data() + int64_t{c.gather ? most_rows - 1 - row : row} * c.n;
    double sum = 0.0;
    for (int32_t i = 0; i < c.n; ++i) sum += double{from[i]} * double{from[i]};
    const double r = 1.0 / std::sqrt(sum / c.n + 1e-5);
    for (int32_t i = 0; i < c.n; ++i) {
      expected[static_cast<size_t>(row * stride + i)] =
          double{from[i]} * r * double{weight[static_cast<size_t>(i)]};
    }
  }
  return CompareValues("rms_norm/n:" + std::to_string(c.n) + "/rows:" +
                           std::to_string(c.rows) + (c.gather ? "/gather" : ""),
                       out_d, expected, kHalfBound);
}

// ---- SwiGlu ------------------------------------------------------------------------

CheckResult CheckSwiGlu(Device& device, StreamId stream, int32_t ffn, int32_t rows) {
  const int32_t most_rows = rows + 2;
  const int64_t stride = cuda::PaddedCols(ffn);
  auto x = Normal(int64_t{most_rows} * 2 * ffn, 3 + static_cast<uint32_t>(ffn), 4.0f);
  x[0] = 60.0f;  // exp2 near both ends.
  x[static_cast<size_t>(ffn) - 1] = -60.0f;
  const DeviceBuffer<float> x_d(device, x, stream);
  const DeviceBuffer<int32_t> count_d(device, std::vector<int32_t>{rows}, stream);
  const DeviceBuffer<uint16_t> out_d(device, most_rows * stride, stream);
  const cuda::SwiGluArgs args{.gate_up = x_d.data(),
                              .out = out_d.data(),
                              .row_count = count_d.data(),
                              .out_stride = stride,
                              .ffn = ffn};
  Must(device.Launch(cuda::SwiGluLaunch(args, most_rows), args, stream));

  std::vector<double> expected(static_cast<size_t>(most_rows * stride), kUntouched);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < ffn; ++i) {
      const double gate{x[static_cast<size_t>(row * 2 * ffn + i)]};
      const double up{x[static_cast<size_t>(row * 2 * ffn + ffn + i)]};
      expected[static_cast<size_t>(row * stride + i)] = gate / (1 + std::exp(-gate)) * up;
    }
  }
  return CompareValues(
      "swiglu/ffn:" + std::to_string(ffn) + "/rows:" + std::to_string(rows), out_d,
      expected, kHalfBound);
}

// ---- RopeAppend --------------------------------------------------------------------

struct RopeCase {
  int32_t heads, kv_heads, head_dim, rope_dims;
  bool halves;
  cuda::PageElement element;
};

uint16_t ToElement(cuda::PageElement element, float x) {
  if (element == cuda::PageElement::kF16) return F32ToF16(x);
  const uint32_t bits = FloatBits(x);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

// All channels of one head: rotation of CpuOps::rope, then the scale.
std::vector<float> Rotated(const RopeCase& c, const float* x, const float* cos,
                           const float* sin, float scale) {
  std::vector<float> out(x, x + c.head_dim);
  const int32_t pairs = c.rope_dims / 2;
  for (int32_t i = 0; i < pairs; ++i) {
    const size_t first = static_cast<size_t>(c.halves ? i : 2 * i);
    const size_t second = static_cast<size_t>(c.halves ? i + pairs : 2 * i + 1);
    out[first] = std::fma(x[first], cos[i], -(x[second] * sin[i]));
    out[second] = std::fma(x[first], sin[i], x[second] * cos[i]);
  }
  for (float& value : out) value *= scale;
  return out;
}

// Forms are 2 layers in a row; everything goes to layer 1.
class RopeCheck {
 public:
  RopeCheck(Device& device, StreamId stream, const RopeCase& c)
      : device_(device),
        stream_(stream),
        c_(c),
        row_size_((c.heads + 2 * c.kv_heads) * c.head_dim) {
    qkv_ = Normal(int64_t{kMostRows} * row_size_, 5);
    for (int32_t i = 0; i < kPositions * c.rope_dims / 2; ++i) {
      cos_.push_back(std::cos(static_cast<float>(i) * 0.37f));
      sin_.push_back(std::sin(static_cast<float>(i) * 0.37f));
    }
  }

  CheckResults Run() {
    const int64_t head_halves = int64_t{2} * 64 * c_.head_dim;
    const int64_t form_halves = 2 * c_.kv_heads * head_halves;
    const DeviceBuffer<float> qkv(device_, qkv_, stream_);
    const DeviceBuffer<float> cos(device_, cos_, stream_);
    const DeviceBuffer<float> sin(device_, sin_, stream_);
    const DeviceBuffer<cuda::RowPlace> places(device_, kPlaces, stream_);
    const DeviceBuffer<int32_t> count(device_, std::vector<int32_t>{kRows}, stream_);
    const DeviceBuffer<uint16_t> q(device_, kMostRows * c_.heads * c_.head_dim, stream_);
    const DeviceBuffer<uint16_t> forms(device_, 2 * form_halves, stream_);
    std::vector<cuda::ChunkForm> table;
    for (int64_t i = 0; i < 2; ++i) {
      table.push_back({.base = reinterpret_cast<uint8_t*>(forms.data() + i * form_halves),
                       .layer_bytes = form_halves});  // Half of the form, in bytes.
    }
    const DeviceBuffer<cuda::ChunkForm> table_d(device_, table, stream_);
    const cuda::RopeAppendArgs args{.qkv = qkv.data(),
                                    .q = q.data(),
                                    .cos = cos.data(),
                                    .sin = sin.data(),
                                    .places = places.data(),
                                    .forms = table_d.data(),
                                    .row_count = count.data(),
                                    .head_bytes = head_halves * 2,
                                    .layer = 1,
                                    .heads = c_.heads,
                                    .kv_heads = c_.kv_heads,
                                    .head_dim = c_.head_dim,
                                    .rope_dims = c_.rope_dims,
                                    .halves = c_.halves ? 1 : 0,
                                    .q_scale = kScale,
                                    .element = c_.element};
    Must(device_.Launch(cuda::RopeAppendLaunch(args, kMostRows), args, stream_));

    const std::string name =
        "rope/hd:" + std::to_string(c_.head_dim) +
        "/dims:" + std::to_string(c_.rope_dims) + "/heads:" + std::to_string(c_.heads) +
        "+" + std::to_string(c_.kv_heads) + (c_.halves ? "/halves" : "/adjacent") +
        (c_.element == cuda::PageElement::kF16 ? "/f16" : "/bf16");
    return {CompareBits(name + "/q", q, ExpectedQ()),
            CompareBits(name + "/kv", forms, ExpectedForms(form_halves, head_halves))};
  }

 private:
  static constexpr int32_t kRows = 7;
  static constexpr int32_t kMostRows = 9;
  static constexpr int32_t kPositions = 130;
  static constexpr float kScale = 0.18033688f;
  inline static const std::vector<cuda::RowPlace> kPlaces = {
      {0, 0}, {15, 0}, {16, 0}, {63, 0}, {64, 1}, {95, 1}, {127, 1}, {5, 0}, {6, 0}};

  const float* HeadOf(int32_t row, int32_t head) const {
    return qkv_.data() + int64_t{row} * row_size_ + int64_t{head} * c_.head_dim;
  }
  std::vector<float> RotatedHead(int32_t row, int32_t head, float scale) const {
    const int64_t angles =
        int64_t{kPlaces[static_cast<size_t>(row)].position} * (c_.rope_dims / 2);
    return Rotated(c_, HeadOf(row, head), cos_.data() + angles, sin_.data() + angles,
                   scale);
  }

  std::vector<uint16_t> ExpectedQ() const {
    std::vector<uint16_t> q;
    for (int32_t row = 0; row < kRows; ++row) {
      for (int32_t head = 0; head < c_.heads; ++head) {
        for (const float x : RotatedHead(row, head, kScale)) {
          q.push_back(ToElement(c_.element, x));
        }
      }
    }
    q.resize(static_cast<size_t>(kMostRows) * static_cast<size_t>(c_.heads * c_.head_dim),
             0xFFFF);
    return q;
  }
  std::vector<uint16_t> ExpectedForms(int64_t form_halves, int64_t head_halves) const {
    const int64_t hd = c_.head_dim;
    std::vector<uint16_t> forms(static_cast<size_t>(2 * form_halves), 0xFFFF);
    for (int32_t row = 0; row < kRows; ++row) {
      const cuda::RowPlace place = kPlaces[static_cast<size_t>(row)];
      const int64_t slot = place.position % 64;
      for (int32_t head = 0; head < c_.kv_heads; ++head) {
        uint16_t* k = forms.data() + place.form * form_halves + form_halves / 2 +
                      head * head_halves;
        const auto key = RotatedHead(row, c_.heads + head, 1.0f);
        const float* value = HeadOf(row, c_.heads + c_.kv_heads + head);
        for (int64_t i = 0; i < hd; ++i) {
          k[(slot / 16 * hd + i) * 16 + slot % 16] =
              ToElement(c_.element, key[static_cast<size_t>(i)]);
          k[(64 + slot) * hd + i] = ToElement(c_.element, value[i]);
        }
      }
    }
    return forms;
  }

  Device& device_;
  const StreamId stream_;
  const RopeCase c_;
  const int32_t row_size_;
  std::vector<float> qkv_, cos_, sin_;
};

// ---- ChunkPool ---------------------------------------------------------------------

std::vector<uint16_t> Halves(const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  for (const float value : values) halves.push_back(F32ToF16(value));
  return halves;
}

// The mean over the queries of one chunk of `size` positions; q, k, v: its first row.
std::vector<double> PooledChunk(const uint16_t* q, const uint16_t* k, const uint16_t* v,
                                int32_t size, int32_t hd, double scale) {
  std::vector<double> out(static_cast<size_t>(hd), 0.0);
  for (int32_t i = 0; i < size; ++i) {
    std::vector<double> p;
    double sum = 0.0;
    for (int32_t j = 0; j < size; ++j) {
      double score = 0.0;
      for (int32_t c = 0; c < hd; ++c)
        score += ValueOf(q[i * hd + c]) * ValueOf(k[j * hd + c]);
      p.push_back(std::exp(score * scale));
      sum += p.back();
    }
    for (int32_t j = 0; j < size; ++j) {
      for (int32_t c = 0; c < hd; ++c) {
        out[static_cast<size_t>(c)] +=
            p[static_cast<size_t>(j)] / sum * ValueOf(v[j * hd + c]) / size;
      }
    }
  }
  return out;
}

CheckResult CheckPool(Device& device, StreamId stream, int32_t batch_heads, int32_t n,
                      int32_t hd) {
  const int64_t size = int64_t{batch_heads} * n * hd;
  const int32_t chunks = cuda::DivideUp(n, 64);
  const float scale = 1.0f / std::sqrt(static_cast<float>(hd));
  const auto q = Halves(Normal(size, 11, 2.0f));
  const auto k = Halves(Normal(size, 12));
  const auto v = Halves(Normal(size, 13));
  const DeviceBuffer<uint16_t> q_d(device, q, stream);
  const DeviceBuffer<uint16_t> k_d(device, k, stream);
  const DeviceBuffer<uint16_t> v_d(device, v, stream);
  const DeviceBuffer<float> out_d(device, int64_t{batch_heads} * chunks * hd, stream);
  const cuda::ChunkPoolArgs args{.q = q_d.data(),
                                 .k = k_d.data(),
                                 .v = v_d.data(),
                                 .out = out_d.data(),
                                 .batch_heads = batch_heads,
                                 .n = n,
                                 .head_dim = hd,
                                 .scale = scale};
  Must(device.Launch(cuda::ChunkPoolLaunch(args), args, stream));

  std::vector<double> expected;
  for (int64_t head = 0; head < batch_heads; ++head) {
    for (int32_t first = 0; first < n; first += 64) {
      const int64_t offset = (head * n + first) * hd;
      const auto out =
          PooledChunk(q.data() + offset, k.data() + offset, v.data() + offset,
                      std::min(64, n - first), hd, double{scale});
      expected.insert(expected.end(), out.begin(), out.end());
    }
  }
  return CompareValues("chunk_pool/hd:" + std::to_string(hd) + "/n:" + std::to_string(n) +
                           "/heads:" + std::to_string(batch_heads),
                       out_d, expected, 1e-4);
}

}  // namespace

CheckResults CheckRows(Device& device, CheckSize size) {
  const StreamId stream = Must(device.CreateStream());
  CheckResults results;
  std::vector<NormCase> norms = {{1, 1, false},    {6, 3, false},    {576, 3, true},
                                 {1000, 2, false}, {1023, 2, true},  {1024, 3, false},
                                 {1026, 2, false}, {1028, 0, false}, {4096, 2, false},
                                 {4100, 1, true},  {16384, 1, false}};
  if (size == CheckSize::kLarge) norms.push_back({8192, 2000, true});
  for (const NormCase& c : norms) results.push_back(CheckNorm(device, stream, c));

  std::vector<std::pair<int32_t, int32_t>> widths = {
      {1, 2}, {6, 2}, {64, 3}, {1023, 1}, {1024, 2}, {1536, 2}, {2052, 0}};
  if (size == CheckSize::kLarge) widths.push_back({14336, 500});
  for (const auto& [ffn, rows] : widths) {
    results.push_back(CheckSwiGlu(device, stream, ffn, rows));
  }

  using cuda::PageElement;
  for (const RopeCase& c : {RopeCase{4, 2, 64, 64, false, PageElement::kF16},
                            RopeCase{4, 2, 64, 64, true, PageElement::kBf16},
                            RopeCase{3, 1, 80, 40, true, PageElement::kF16},
                            RopeCase{8, 8, 16, 8, false, PageElement::kBf16},
                            RopeCase{5, 1, 128, 128, true, PageElement::kF16},
                            RopeCase{2, 2, 48, 0, true, PageElement::kF16}}) {
    for (CheckResult& result : RopeCheck(device, stream, c).Run()) {
      results.push_back(std::move(result));
    }
  }
  return results;
}

CheckResults CheckChunkPool(Device& device, CheckSize size) {
  const StreamId stream = Must(device.CreateStream());
  CheckResults results;
  for (const int32_t hd : {16, 48, 64, 80, 128}) {
    for (const int32_t n : {1, 63, 64, 130}) {
      results.push_back(CheckPool(device, stream, 2, n, hd));
    }
  }
  if (size == CheckSize::kLarge) {
    results.push_back(CheckPool(device, stream, 32, 4096, 64));
    results.push_back(CheckPool(device, stream, 32, 4090, 128));
  }
  return results;
}

}  // namespace renga::test
