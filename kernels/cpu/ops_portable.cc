// The definition of every op: plain loops, one row and one output at a time, any CPU.
//
// The SIMD files must give the same bits. Each fused multiply-add is written as fma, each
// sum in the order that src/README.md ("One arithmetic") fixes. Compiled for baseline
// x86-64: fmaf is then the C library's, exact with or without the instruction.

#define RENGA_ISA portable

#include "kernels/cpu/attention_int8_portable-inl.h"
#include "kernels/cpu/attention_portable-inl.h"
#include "kernels/cpu/exp2-inl.h"
#include "kernels/cpu/scalar-inl.h"
#include "kernels/ops.h"

namespace renga {
namespace portable {

namespace {

void Store(const MatmulArgs& args, int64_t row, int64_t output, float value) {
  float& out = args.out[row * args.out_stride + output];
  out = args.add ? out + value : value;
}

// ---- Matrix products ---------------------------------------------------------------

// The code of x at k = 4 j + i of a block.
int CodeOf(const MatmulArgs& args, int64_t row, int64_t block, int64_t j, int64_t i) {
  const int64_t blocks = args.cols / kBlockValues;
  const int64_t tile_block = row / kTileRows * blocks + block;
  const int8_t* high =
      args.quant.codes + tile_block * kTileBlockCodes + j * 32 + row % kTileRows * 4 + i;
  return high[0] * 256 + high[kTileBlockCodes / kCodePlanes];
}

int64_t ScaleIndex(const MatmulArgs& args, int64_t row, int64_t block) {
  const int64_t blocks = args.cols / kBlockValues;
  return (row / kTileRows * blocks + block) * kTileRows + row % kTileRows;
}

void DotsQ4_1(const MatmulArgs& args, const uint8_t* weights, int64_t row, int64_t block,
              int (&dots)[kPanelRows]) {
  for (int& dot : dots) dot = 0;
  for (int64_t j = 0; j < 8; ++j) {
    for (int i = 0; i < 4; ++i) {
      const int x = CodeOf(args, row, block, j, i);
      for (int r = 0; r < 16; ++r) {
        const int pair = weights[j * 64 + r * 4 + i];
        dots[r] += (pair & 15) * x;
        dots[r + 16] += (pair >> 4) * x;
      }
    }
  }
}

void DotsQ8_0(const MatmulArgs& args, const uint8_t* weights, int64_t row, int64_t block,
              int (&dots)[kPanelRows]) {
  for (int& dot : dots) dot = 0;
  for (int64_t j = 0; j < 8; ++j) {
    for (int i = 0; i < 4; ++i) {
      const int x = CodeOf(args, row, block, j, i);
      for (int r = 0; r < 32; ++r) dots[r] += (weights[j * 128 + r * 4 + i] - 128) * x;
    }
  }
}

// One row times one panel.
void RowPanelQ4_1(const MatmulArgs& args, const uint8_t* panel, int64_t row,
                  float (&acc)[kPanelRows]) {
  for (int64_t block = 0; block < args.cols / kBlockValues; ++block) {
    const uint8_t* weights = panel + block * kQ4_1PanelBlockBytes;
    int dots[kPanelRows];
    DotsQ4_1(args, weights, row, block, dots);
    const int64_t index = ScaleIndex(args, row, block);
    for (int64_t n = 0; n < kPanelRows; ++n) {
      const float d = LoadF16(weights + 512 + n * 2);
      const float m = LoadF16(weights + 576 + n * 2);
      acc[n] = Fma(static_cast<float>(dots[n]) * d, args.quant.scales[index], acc[n]);
      acc[n] = Fma(m, args.quant.scaled_sums[index], acc[n]);
    }
  }
}

void RowPanelQ8_0(const MatmulArgs& args, const uint8_t* panel, int64_t row,
                  float (&acc)[kPanelRows]) {
  for (int64_t block = 0; block < args.cols / kBlockValues; ++block) {
    const uint8_t* weights = panel + block * kQ8_0PanelBlockBytes;
    int dots[kPanelRows];
    DotsQ8_0(args, weights, row, block, dots);
    const int64_t index = ScaleIndex(args, row, block);
    for (int64_t n = 0; n < kPanelRows; ++n) {
      const float d = LoadF16(weights + 1024 + n * 2);
      acc[n] = Fma(static_cast<float>(dots[n]) * d, args.quant.scales[index], acc[n]);
    }
  }
}

void RowPanelQ4K(const MatmulArgs& args, const uint8_t* panel, int64_t row,
                 float (&acc)[kPanelRows]) {
  for (int64_t block = 0; block < args.cols / kBlockValues; ++block) {
    const uint8_t* super = panel + Q4KSuperOffset(block);
    const uint8_t* weights = panel + Q4KBlockOffset(block);
    int dots[kPanelRows];
    DotsQ4_1(args, weights, row, block, dots);
    const int64_t index = ScaleIndex(args, row, block);
    for (int64_t n = 0; n < kPanelRows; ++n) {
      const float d = LoadF16(super + n * 2) * static_cast<float>(weights[512 + n]);
      const float m = LoadF16(super + 64 + n * 2) * static_cast<float>(weights[544 + n]);
      acc[n] = Fma(static_cast<float>(dots[n]) * d, args.quant.scales[index], acc[n]);
      acc[n] = Fma(-m, args.quant.scaled_sums[index], acc[n]);
    }
  }
}

void RowPanelF16(const MatmulArgs& args, const uint8_t* panel, int64_t row,
                 float (&acc)[kPanelRows]) {
  for (int64_t k = 0; k < args.cols; ++k) {
    for (int64_t n = 0; n < kPanelRows; ++n) {
      acc[n] = Fma(LoadF16(panel + (k * kPanelRows + n) * 2),
                   args.x[row * args.x_stride + k], acc[n]);
    }
  }
}

void RowPanelF32(const MatmulArgs& args, const uint8_t* panel, int64_t row,
                 float (&acc)[kPanelRows]) {
  for (int64_t k = 0; k < args.cols; ++k) {
    for (int64_t n = 0; n < kPanelRows; ++n) {
      acc[n] = Fma(LoadF32(panel + (k * kPanelRows + n) * 4),
                   args.x[row * args.x_stride + k], acc[n]);
    }
  }
}

using RowPanel = void (*)(const MatmulArgs&, const uint8_t*, int64_t,
                          float (&)[kPanelRows]);

template <WeightType kType, RowPanel kRowPanel>
void Matmul(const MatmulArgs& args) {
  const int64_t panel_bytes = PanelBytes(kType, args.cols);
  for (int64_t p = 0; p < args.panel_count; ++p) {
    for (int64_t row = 0; row < args.rows; ++row) {
      float acc[kPanelRows] = {};
      kRowPanel(args, args.panels + p * panel_bytes, row, acc);
      for (int64_t n = 0; n < kPanelRows && p * kPanelRows + n < args.outputs; ++n) {
        Store(args, row, p * kPanelRows + n, acc[n]);
      }
    }
  }
}

// ---- Row ops -----------------------------------------------------------------------

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  float sums[16] = {};
  for (int64_t i = 0; i < n; ++i) sums[i % 16] = Fma(x[i], x[i], sums[i % 16]);
  const float mean = FoldSum(sums) / static_cast<float>(n);
  const float r = 1.0f / __builtin_sqrtf(mean + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] * r) * weight[i];
}

float BlockMax(const float* x) {
  uint32_t largest = 0;  // Bits of max|x|: ordered like the values, NaN above all.
  for (int64_t i = 0; i < kBlockValues; ++i) {
    const uint32_t magnitude = FloatBits(x[i]) & 0x7FFFFFFFu;
    if (magnitude > largest) largest = magnitude;
  }
  return BitsFloat(largest);
}

void QuantiseBlock(const float* x, bool coarse, int32_t (&codes)[kBlockValues],
                   float& scale) {
  const float max_abs = BlockMax(x);
  const bool finite = FloatBits(max_abs) < 0x7F800000u;
  const bool zero = finite && max_abs < 1e-30f;
  scale = zero ? 0.0f : finite ? max_abs / kLargestCode : BitsFloat(0x7FC00000u);
  const float inverse = (coarse ? kLargestPlane : kLargestCode) / max_abs;
  for (int64_t i = 0; i < kBlockValues; ++i) {
    codes[i] = finite && !zero ? RoundCode(x[i] * inverse) : 0;
    if (coarse) codes[i] *= 256;
  }
}

float CoarseLimit(const float* x, int64_t blocks, float coarse) {
  if (!(coarse > 0.0f)) return 0.0f;
  float sum = 0.0f;
  for (int64_t b = 0; b < blocks; ++b) {
    const float max_abs = BlockMax(x + b * kBlockValues);
    sum = sum + max_abs * max_abs;
  }
  return coarse * (sum / static_cast<float>(blocks));
}

// Row r of a tile; `x` is nullptr where the tile has no such row.
void QuantiseRow(const float* x, int64_t blocks, float coarse, int64_t r,
                 const QuantRows& tile) {
  const float limit = x != nullptr ? CoarseLimit(x, blocks, coarse) : 0.0f;
  for (int64_t b = 0; b < blocks; ++b) {
    int32_t codes[kBlockValues] = {};
    float scale = 0.0f;
    if (x != nullptr) {
      const float max_abs = BlockMax(x + b * kBlockValues);
      const bool is_coarse = max_abs * max_abs < limit;
      QuantiseBlock(x + b * kBlockValues, is_coarse, codes, scale);
      const unsigned fine_before = r > 0 ? tile.fine[b] : 0u;
      const unsigned fine = is_coarse ? 0u : 1u << r;
      tile.fine[b] = static_cast<uint8_t>(fine_before | fine);
    }
    int32_t sum = 0;
    for (int64_t k = 0; k < kBlockValues; ++k) {
      const int32_t high = (codes[k] + 128) >> 8;
      int8_t* target = tile.codes + b * kTileBlockCodes + (k / 4) * 32 + r * 4 + k % 4;
      target[0] = static_cast<int8_t>(high);
      target[kTileBlockCodes / kCodePlanes] = static_cast<int8_t>(codes[k] - high * 256);
      sum += codes[k];
    }
    tile.scales[b * kTileRows + r] = scale;
    tile.scaled_sums[b * kTileRows + r] = scale * static_cast<float>(sum);
    tile.code_sums[b * kTileRows + r] = sum;
  }
}

void QuantiseRows(const QuantiseArgs& args) {
  const int64_t places = (args.rows + kTileRows - 1) / kTileRows * kTileRows;
  for (int64_t row = 0; row < places; ++row) {
    QuantiseRow(row < args.rows ? args.x + row * args.x_stride : nullptr,
                args.cols / kBlockValues, args.coarse, row % kTileRows,
                TileOf(args.out, args.cols, row / kTileRows));
  }
}

void Swiglu(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = (gate[i] / (1.0f + Exp2(-gate[i] * kLog2E))) * up[i];
  }
}

void Rope(const RopeArgs& args) {
  const int half = args.rope_dims / 2;
  for (int head = 0; head < args.heads; ++head) {
    float* x = args.x + static_cast<int64_t>(head) * args.head_dim;
    for (int i = 0; i < half; ++i) {
      float& first = args.halves ? x[i] : x[2 * i];
      float& second = args.halves ? x[i + half] : x[2 * i + 1];
      const float a = first;
      const float b = second;
      first = Fma(a, args.cos[i], -(b * args.sin[i]));
      second = Fma(a, args.sin[i], b * args.cos[i]);
    }
    for (int i = 0; i < args.head_dim; ++i) x[i] = x[i] * args.scale;
  }
}

// ---- Sampling ----------------------------------------------------------------------

constexpr float kInfinity = __builtin_inff();

float BlockMax(const float* x, int64_t n, float* maxima) {
  bool bad = false;
  float largest = -kInfinity;
  for (int64_t first = 0; first < n; first += kMaxBlock) {
    float max = -kInfinity;
    for (int64_t i = first; i < first + kMaxBlock && i < n; ++i) {
      bad |= !(x[i] < kInfinity);
      max = x[i] > max ? x[i] : max;
    }
    largest = max > largest ? max : largest;
    maxima[first / kMaxBlock] = max + 0.0f;  // Never -0.
  }
  return bad ? __builtin_nanf("") : largest + 0.0f;
}

int64_t AtLeastRow(const AtLeastArgs& args) {
  int64_t count = 0;
  for (int64_t i = 0; i < args.n; ++i) {
    if (!(args.x[i] >= args.threshold)) continue;
    args.ids[count] = static_cast<int32_t>(i);
    args.values[count++] = args.x[i];
  }
  return count;
}

// exp2(x) for x <= 0. The clamp works on the bits: a comparison of floats keeps GCC from
// vectorising the loops over the vocabulary (3 times slower).
float PlainExp2(float x) {
  const int32_t magnitude = static_cast<int32_t>(FloatBits(x) & 0x7FFFFFFFu);
  const int32_t limit = 0x42FE0000;  // 127.0f
  const int32_t limited = magnitude < limit ? magnitude : limit;
  const float clamped = BitsFloat(static_cast<uint32_t>(limited) | 0x80000000u);
  const float shifted = clamped + kRoundMagic;
  const float f = clamped - (shifted - kRoundMagic);
  float p = kExp2C6;
  p = p * f + kExp2C5;
  p = p * f + kExp2C4;
  p = p * f + kExp2C3;
  p = p * f + kExp2C2;
  p = p * f + kExp2C1;
  p = p * f + kExp2C0;
  return p * BitsFloat((FloatBits(shifted) + 127u) << 23);
}

uint64_t SampleWeights(const float* x, int64_t n, float max, float scale,
                       uint32_t* weights) {
  for (int64_t i = 0; i < n; ++i) {
    const float e = PlainExp2((x[i] - max) * scale);
    // As the vector code rounds; e is not negative.
    const float rounded = e * kSampleWeightOne + 0.5f;
    weights[i] = static_cast<uint32_t>(static_cast<int32_t>(rounded));
  }
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += weights[i];
  return sum;
}

double ExpSum(const float* x, int64_t n, float max) {
  double lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int64_t lane = 0; lane < 16; ++lane) {
      lanes[lane] += static_cast<double>(PlainExp2((x[i + lane] - max) * kLog2E));
    }
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) {
    lanes[lane] += static_cast<double>(PlainExp2((x[i] - max) * kLog2E));
  }
  for (int half = 8; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace

extern const CpuOps kOps;
const CpuOps kOps = {
    .name = "portable",
    .matmul_q4_1 = Matmul<WeightType::kQ4_1, RowPanelQ4_1>,
    .matmul_q4_k = Matmul<WeightType::kQ4_K, RowPanelQ4K>,
    .matmul_q8_0 = Matmul<WeightType::kQ8_0, RowPanelQ8_0>,
    .matmul_f16 = Matmul<WeightType::kF16, RowPanelF16>,
    .matmul_f32 = Matmul<WeightType::kF32, RowPanelF32>,
    .rms_norm = RmsNorm,
    .quantise_rows = QuantiseRows,
    .swiglu = Swiglu,
    .rope = Rope,
    .kv_append_f16 = KvAppend<F16>,
    .kv_append_f32 = KvAppend<F32>,
    .kv_close_int8 = KvCloseInt8,
    .attend_f16 = Attend<F16>,
    .attend_f32 = Attend<F32>,
    .attend_int8 = Attend<Int8>,
    .merge_partials = MergePartials,
    .block_max = BlockMax,
    .at_least = AtLeastRow,
    .sample_weights = SampleWeights,
    .exp_sum = ExpSum,
};

}  // namespace portable
}  // namespace renga
