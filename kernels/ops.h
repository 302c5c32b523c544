// The fine ops of one instruction set: a table of function pointers, chosen once.
//
// Raw pointers and sizes only: no Status, no logging, no allocation. All arguments have
// been checked by the caller. Every table gives the same bits (src/README.md, "One
// arithmetic"); kernels/cpu/ops_portable.cc is the definition, written row at a time.
//
// Legend: row = one token; tile = 8 rows; block = 32 values along k (cols); panel = 32
// rows of a weight (kernels/block_format.h). hd = head_dim.

#pragma once

#include <stdint.h>

#include "kernels/block_format.h"
#include "kernels/kv_page_format.h"

namespace renga {

// Rows of activations as 16-bit codes, 32 values to a scale, interleaved by tiles of 8
// rows so that a kernel reads one stream. A code is kept as two int8 planes,
// code = 256 * high + low, both in [-127, 127]: the int8 dot products of each plane give
// an exact integer dot. A row may be coarse in a block: its low codes are all 0 there,
// and only those of the other rows, the fine ones, need the second product.
//   codes        [tile][block][plane high, low][k4 0..7][row 0..7][4]   int8
//   scales       [tile][block][row 0..7]               s
//   scaled_sums  [tile][block][row 0..7]               s * float(code_sum)
//   code_sums    [tile][block][row 0..7]               sum of the 32 codes
//   fine         [tile][block]                         bit r: row r is fine
struct QuantRows {
  int8_t* codes = nullptr;
  float* scales = nullptr;
  float* scaled_sums = nullptr;
  int32_t* code_sums = nullptr;
  uint8_t* fine = nullptr;
};

// The same, starting at a later tile.
static inline QuantRows TileOf(const QuantRows& x, int64_t cols, int64_t tile) {
  const int64_t blocks = cols / kBlockValues * tile;
  return {x.codes + blocks * kTileBlockCodes, x.scales + blocks * kTileRows,
          x.scaled_sums + blocks * kTileRows, x.code_sums + blocks * kTileRows,
          x.fine + blocks};
}

struct QuantiseArgs {
  const float* x = nullptr;  // [rows, x_stride]
  int64_t x_stride = 0;
  int64_t rows = 0;
  int64_t cols = 0;     // A multiple of 32.
  float coarse = 0.0f;  // 0: every row is fine.
  QuantRows out;        // From row 0 on.
};

struct MatmulArgs {
  const uint8_t* panels = nullptr;  // The first of `panel_count` consecutive panels.
  int64_t panel_count = 0;
  int64_t cols = 0;          // k of the product.
  int64_t outputs = 0;       // Weight rows in these panels; only the last may be ragged.
  QuantRows quant;           // Input of the quantised types: `rows` rows from row 0.
  const float* x = nullptr;  // Input of F32 and F16: [rows, x_stride].
  int64_t x_stride = 0;
  int64_t rows = 0;
  float* out = nullptr;  // [rows, out_stride], column 0 = first row of the first panel.
  int64_t out_stride = 0;
  bool add = false;  // out += instead of out =.
};

constexpr int64_t kMaxHeadDim = 256;
constexpr int64_t kChunkPositions = 64;  // A page.
constexpr int64_t kGroupChunks = 4;      // Chunks folded first in the merge tree.

// One query's state of a softmax over some positions, as floats in memory:
// m, l, o[hd] (o not divided by l).
constexpr int64_t kPartialHeader = 2;

// Rows of one sequence and one KV head over a range of tree groups.
struct AttendArgs {
  const float* q = nullptr;  // [rows][heads][hd]; row stride `q_stride`; scaled, rotated.
  int64_t q_stride = 0;
  float* out = nullptr;  // [rows][heads][hd]; row stride `out_stride`.
  int64_t out_stride = 0;
  int32_t rows = 0;
  int32_t heads = 0;  // Query heads of this KV head.
  int32_t head_dim = 0;
  int64_t first_position = 0;      // Of row 0; it sees positions 0..first_position.
  const uint8_t* pool = nullptr;   // K of this (layer, KV head) in page 0.
  int64_t page_stride = 0;         // Bytes from page to page.
  const int32_t* pages = nullptr;  // Page i holds positions [64 i, 64 i + 64).
  // int8 alone: the f16 form of each row's own chunk, K then V as in an f16 page. Chunk
  // `first_own_chunk` + i is at own[i]; first_own_chunk is that of row 0. Every earlier
  // chunk of a row is read from its page.
  const uint8_t* const* own = nullptr;
  int64_t first_own_chunk = 0;
  int64_t first_group = 0;  // Of 256 positions.
  int64_t groups = 0;
  // Rows that these groups do not cover whole write one partial per group to
  // partials + partial_rows[row] * partial_row_stride + head * partial_head_stride
  //          + group * (2 + hd).
  float* partials = nullptr;
  const int32_t* partial_rows = nullptr;
  int64_t partial_row_stride = 0;
  int64_t partial_head_stride = 0;
};

struct RopeArgs {
  float* x = nullptr;  // [heads, hd], rotated in place.
  int32_t heads = 0;
  int32_t head_dim = 0;
  int32_t rope_dims = 0;       // Leading channels that are rotated.
  bool halves = false;         // Pairs (i, i + rope_dims / 2), else (2 i, 2 i + 1).
  const float* cos = nullptr;  // [rope_dims / 2] of this position.
  const float* sin = nullptr;  // [rope_dims / 2]
  float scale = 1.0f;          // Applied to every channel after the rotation.
};

struct KvAppendArgs {
  const float* k = nullptr;  // [hd], rotated.
  const float* v = nullptr;  // [hd]
  uint8_t* page = nullptr;   // K of this (layer, KV head) in its page, V behind it.
  int32_t head_dim = 0;
  int32_t slot = 0;  // Position inside the page.
};

// One whole chunk of one KV head, from its f16 form to its int8 form.
struct KvCloseArgs {
  const uint8_t* open = nullptr;  // f16: K [4][hd][16], then V [64][hd].
  uint8_t* page = nullptr;        // int8: Int8PageOf(hd).bytes.
  int32_t head_dim = 0;           // A multiple of 16.
};

constexpr int64_t kMaxBlock = 64;               // Logits that share one maximum.
constexpr float kSampleWeightOne = 0x1.0p+30f;  // Weight of the largest logit.

// Values of a row that are not below a threshold.
struct AtLeastArgs {
  const float* x = nullptr;  // [n]; no NaN.
  int64_t n = 0;
  const float* maxima = nullptr;  // [ceil(n / 64)], by block_max.
  float threshold = 0.0f;
  int32_t* ids = nullptr;   // [n + 16]: out, rising indices; 16 more may be overwritten.
  float* values = nullptr;  // [n + 16]: out, x at each.
};

struct CpuOps {
  const char* name;

  // out[row][n] (+)= sum over k of x[row][k] * w[n][k]. Per block of 32 k an exact
  // integer dot, then acc = fma(float(dot) * d, s, acc) and, for Q4_1, acc = fma(m, s *
  // sum, acc). Q4_K: as Q4_1 with d * float(scale) and -(dmin * float(min)), both exact.
  // F32 and F16: acc = fma(w, x, acc) in order of k. Q4_0 has the panels of Q4_1.
  void (*matmul_q4_1)(const MatmulArgs& args);
  void (*matmul_q4_k)(const MatmulArgs& args);
  void (*matmul_q8_0)(const MatmulArgs& args);
  void (*matmul_f16)(const MatmulArgs& args);
  void (*matmul_f32)(const MatmulArgs& args);

  // out[i] = (x[i] * r) * weight[i], r = 1 / sqrt(sum(x^2) / n + eps). x, out: [n]; the
  // sum is made of 16 partial sums.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out);

  // Codes: per 32 values of a row s = max|x| / 32512, code = round_to_even(x * (32512 /
  // max|x|)), one more where its low plane would be -128. max|x| < 1e-30: s = 0, codes 0.
  // A NaN or inf: s = NaN, codes 0. A row is coarse in a block, code = 256 *
  // round_to_even(x * (127 / max|x|)), if its max|x|^2 there is below `coarse` times the
  // mean of that over the row's blocks. The last tile's places without a row get zeros.
  void (*quantise_rows)(const QuantiseArgs& args);

  // out[i] = (gate[i] / (1 + exp2(-gate[i] * log2(e)))) * up[i]. All [n].
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* out);

  // (a, b) -> (fma(a, cos, -(b * sin)), fma(a, sin, b * cos)), then * scale.
  void (*rope)(const RopeArgs& args);

  // K into [block of 16 positions][hd][16], V into [64][hd], rounded to nearest even.
  void (*kv_append_f16)(const KvAppendArgs& args);
  void (*kv_append_f32)(const KvAppendArgs& args);

  // Codes of a chunk. Keys, per channel: min = smallest, step = f16((largest - min) /
  // 255), code = round_to_even((k - min) * (1 / step)) clamped to [0, 255]; step 0: codes
  // 0. Values, per token: scale = f16(max|v| / 127), code = round_to_even(v * (1 /
  // scale)) clamped to [-127, 127]; scale 0: codes 0. A NaN or an infinity among them:
  // min = NaN and step = 0, or scale = NaN; codes 0. No -0.0 is written for a 0.
  void (*kv_close_int8)(const KvCloseArgs& args);

  // out = softmax(q . K) . V on the merge tree of src/README.md.
  void (*attend_f16)(const AttendArgs& args);
  void (*attend_f32)(const AttendArgs& args);
  // The same over int8 pages (head_dim % 16 == 0); a row's own chunk is f16
  // (AttendArgs::own) and has the bits of attend_f16. Per query and closed chunk:
  // - w[c] = q[c] * step[c]; s = max|w| / 32512, codes round_to_even(w * (32512 /
  //   max|w|)), one more where the low plane would be -128. max|w| < 1e-30: s = 0, codes
  //   0; not finite: s = NaN, codes 0.
  // - base = sum of q[c] * min[c]: fma into 16 partial sums, folded as in rms_norm.
  // - score[t] = fma(float(exact dot of the codes), s, base); m, p[t] and l as for f16.
  // - u[t] = p[t] * |scale[t]|; z = max u / 32767, codes round_to_even(u * (32767 / max
  //   u)). max u < 1e-30: z = 0, codes 0; not finite: z = NaN, codes 0.
  // - o[c] = float(exact dot of the codes) * z.
  // Any bytes in a page give some numbers, on every instruction set the same.
  void (*attend_int8)(const AttendArgs& args);

  // Folds `count` partials [count][2 + hd] left to right and writes o / l to out [hd].
  void (*merge_partials)(const float* partials, int64_t count, int64_t head_dim,
                         float* out);

  // maxima[b] = max of x[64 b .. 64 b + 63] ([ceil(n / 64)]); returns the largest of all.
  // A NaN or +inf in x: returns a NaN, and the maxima mean nothing.
  float (*block_max)(const float* x, int64_t n, float* maxima);

  // Returns how many values are not below the threshold. Blocks whose maximum is below it
  // are not read.
  int64_t (*at_least)(const AtLeastArgs& args);

  // weights[i] = floor(2^30 * e + 0.5), e = exp2((x[i] - max) * scale), and returns their
  // sum. x: [n], none above max, -inf is legal; scale > 0. exp2 is that of exp2-inl.h
  // with multiplications and additions in place of fma; its argument is clamped to -127
  // from below, where it is 0.
  uint64_t (*sample_weights)(const float* x, int64_t n, float max, float scale,
                             uint32_t* weights);

  // Sum of exp2((x[i] - max) * log2(e)), the same exp2, each rounded to float: 16 partial
  // sums in double precision, element i in sum i mod 16, folded 8, 4, 2, 1.
  double (*exp_sum)(const float* x, int64_t n, float max);
};

}  // namespace renga
