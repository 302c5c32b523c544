// The definition of every op: plain loops, one row and one output at a time, any CPU.
//
// The SIMD files must give the same bits. Each fused multiply-add is written as fma, each
// sum in the order that src/README.md ("One arithmetic") fixes. Compiled for baseline
// x86-64: fmaf is then the C library's, exact with or without the instruction.

#define RENGA_ISA portable

#include "kernels/cpu/exp2-inl.h"
#include "kernels/ops.h"

namespace renga {
namespace portable {

namespace {

float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// 16 partial sums, folded 8, 4, 2, 1.
float FoldSum(float (&sums)[16]) {
  for (int n = 8; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) sums[i] = sums[i] + sums[i + n];
  }
  return sums[0];
}

float LoadF16(const uint8_t* data) {
  uint16_t half;
  __builtin_memcpy(&half, data, 2);
  return F16ToF32(half);
}

float LoadF32(const uint8_t* data) {
  float value;
  __builtin_memcpy(&value, data, 4);
  return value;
}

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

// The nearest code whose planes fit [-127, 127].
int32_t RoundCode(float value) {
  const int32_t code = static_cast<int32_t>((value + kRoundMagic) - kRoundMagic);
  const int32_t low = code - ((code + 128) >> 8) * 256;
  return low == -128 ? code + 1 : code;
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

void QuantiseRow(const float* x, int64_t n, float coarse, int64_t row,
                 const QuantRows& out) {
  const int64_t blocks = n / kBlockValues;
  const QuantRows tile = TileOf(out, n, row / kTileRows);
  const int64_t r = row % kTileRows;
  const float limit = CoarseLimit(x, blocks, coarse);
  for (int64_t b = 0; b < blocks; ++b) {
    const float max_abs = BlockMax(x + b * kBlockValues);
    const bool is_coarse = max_abs * max_abs < limit;
    const bool fine_before = r > 0 && tile.fine[b] != 0;
    tile.fine[b] = fine_before || !is_coarse;
    int32_t codes[kBlockValues];
    float scale;
    QuantiseBlock(x + b * kBlockValues, is_coarse, codes, scale);
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

// ---- Attention ---------------------------------------------------------------------

struct F16 {
  static constexpr int64_t kBytes = 2;
  static float Load(const uint8_t* data) { return LoadF16(data); }
  static void Store(uint8_t* data, float value) {
    const uint16_t half = F32ToF16(value);
    __builtin_memcpy(data, &half, 2);
  }
};

struct F32 {
  static constexpr int64_t kBytes = 4;
  static float Load(const uint8_t* data) { return LoadF32(data); }
  static void Store(uint8_t* data, float value) { __builtin_memcpy(data, &value, 4); }
};

template <class Element>
void KvAppend(const KvAppendArgs& args) {
  const int64_t hd = args.head_dim;
  uint8_t* k = args.page + (args.slot / 16 * hd * 16 + args.slot % 16) * Element::kBytes;
  uint8_t* v = args.page + (kChunkPositions + args.slot) * hd * Element::kBytes;
  for (int64_t i = 0; i < hd; ++i) {
    Element::Store(k + i * 16 * Element::kBytes, args.k[i]);
    Element::Store(v + i * Element::kBytes, args.v[i]);
  }
}

// The state (m, l, o) of one query over some of its positions.
struct Partial {
  float m;
  float l;
  float o[kMaxHeadDim];
};

// `into` = fold of `into` and `next`.
void Fold(Partial& into, const Partial& next, int64_t hd) {
  const float m = into.m > next.m ? into.m : next.m;
  const float wa = Exp2(into.m - m);
  const float wb = Exp2(next.m - m);
  into.m = m;
  into.l = Fma(into.l, wa, next.l * wb);
  for (int64_t i = 0; i < hd; ++i) into.o[i] = Fma(into.o[i], wa, next.o[i] * wb);
}

// One chunk, of which the query sees the first `seen` positions (1..64).
template <class Element>
void Chunk(const float* q, const uint8_t* page, int64_t hd, int64_t seen, Partial& out) {
  float scores[kChunkPositions];
  for (int64_t t = 0; t < seen; ++t) {
    const uint8_t* k = page + (t / 16 * hd * 16 + t % 16) * Element::kBytes;
    float score = 0.0f;
    for (int64_t i = 0; i < hd; ++i) {
      score = Fma(Element::Load(k + i * 16 * Element::kBytes), q[i], score);
    }
    scores[t] = score;
  }
  out.m = scores[0];
  for (int64_t t = 1; t < seen; ++t) out.m = out.m > scores[t] ? out.m : scores[t];
  float sums[16] = {};
  for (int64_t i = 0; i < hd; ++i) out.o[i] = 0.0f;
  for (int64_t t = 0; t < seen; ++t) {
    const float p = Exp2(scores[t] - out.m);
    sums[t % 16] = sums[t % 16] + p;
    const uint8_t* v = page + (kChunkPositions + t) * hd * Element::kBytes;
    for (int64_t i = 0; i < hd; ++i) {
      out.o[i] = Fma(p, Element::Load(v + i * Element::kBytes), out.o[i]);
    }
  }
  out.l = FoldSum(sums);
}

// One group of 4 chunks for the query at `position`, which sees at least its first.
template <class Element>
void Group(const AttendArgs& args, const float* q, int64_t position, int64_t group,
           Partial& out) {
  for (int64_t c = 0; c < kGroupChunks; ++c) {
    const int64_t chunk = group * kGroupChunks + c;
    const int64_t visible = position + 1 - chunk * kChunkPositions;
    if (visible <= 0) return;
    const int64_t seen = visible < kChunkPositions ? visible : kChunkPositions;
    const uint8_t* page = args.pool + args.pages[chunk] * args.page_stride;
    Partial next;
    Partial& target = c == 0 ? out : next;
    Chunk<Element>(q, page, args.head_dim, seen, target);
    if (c > 0) Fold(out, next, args.head_dim);
  }
}

void WriteOutput(const Partial& state, int64_t hd, float* out) {
  for (int64_t i = 0; i < hd; ++i) out[i] = state.o[i] / state.l;
}

template <class Element>
void AttendQuery(const AttendArgs& args, int64_t row, int64_t head) {
  const int64_t hd = args.head_dim;
  const int64_t position = args.first_position + row;
  const int64_t needed = position / (kGroupChunks * kChunkPositions) + 1;
  const int64_t end =
      args.first_group + args.groups < needed ? args.first_group + args.groups : needed;
  const bool whole = args.first_group == 0 && end == needed;
  const float* q = args.q + row * args.q_stride + head * hd;
  Partial total;
  for (int64_t g = args.first_group; g < end; ++g) {
    Partial state;
    Partial& target = g == 0 && whole ? total : state;
    Group<Element>(args, q, position, g, target);
    if (!whole) {
      float* out = args.partials + args.partial_rows[row] * args.partial_row_stride +
                   head * args.partial_head_stride + g * (kPartialHeader + hd);
      out[0] = state.m;
      out[1] = state.l;
      for (int64_t i = 0; i < hd; ++i) out[2 + i] = state.o[i];
    } else if (g > 0) {
      Fold(total, state, hd);
    }
  }
  if (whole) WriteOutput(total, hd, args.out + row * args.out_stride + head * hd);
}

template <class Element>
void Attend(const AttendArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t head = 0; head < args.heads; ++head) {
      AttendQuery<Element>(args, row, head);
    }
  }
}

void MergePartials(const float* partials, int64_t count, int64_t head_dim, float* out) {
  Partial total;
  for (int64_t g = 0; g < count; ++g) {
    Partial next;
    Partial& target = g == 0 ? total : next;
    target.m = partials[0];
    target.l = partials[1];
    for (int64_t i = 0; i < head_dim; ++i) target.o[i] = partials[2 + i];
    if (g > 0) Fold(total, next, head_dim);
    partials += kPartialHeader + head_dim;
  }
  WriteOutput(total, head_dim, out);
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
    .matmul_q8_0 = Matmul<WeightType::kQ8_0, RowPanelQ8_0>,
    .matmul_f16 = Matmul<WeightType::kF16, RowPanelF16>,
    .matmul_f32 = Matmul<WeightType::kF32, RowPanelF32>,
    .rms_norm = RmsNorm,
    .quantise_row = QuantiseRow,
    .swiglu = Swiglu,
    .rope = Rope,
    .kv_append_f16 = KvAppend<F16>,
    .kv_append_f32 = KvAppend<F32>,
    .attend_f16 = Attend<F16>,
    .attend_f32 = Attend<F32>,
    .merge_partials = MergePartials,
    .block_max = BlockMax,
    .at_least = AtLeastRow,
    .sample_weights = SampleWeights,
    .exp_sum = ExpSum,
};

}  // namespace portable
}  // namespace renga
