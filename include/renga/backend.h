// Backend: one device. Memory, weights, the KV pages, and the fused steps that `model`
// calls, in order, for one batch of rows.
//
// Legend: rows = tokens computed in this step, over all sequences; dim = model width;
// heads / kv_heads x head_dim; a page = a chunk of 64 positions of one sequence, all
// layers; "logit rows" = the rows whose logits are wanted.
//
// Activations are opaque: their dtype and layout are the backend's own. How a step is
// split over workers, streams or graphs is the backend's own affair as well, but it may
// not change a bit of any result (src/README.md, "Results do not depend on company").
//
// Errors of a step: Unavailable says that the device is lost, and every later call will
// fail; anything else that a later step may well succeed.
//
// Thread rule: one thread (the engine's) calls a backend.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "renga/request.h"
#include "renga/status.h"
#include "renga/types.h"

namespace renga {

// ---- Weights -----------------------------------------------------------------------

enum class TensorType : uint8_t { kF32, kF16, kQ8_0, kQ4_1, kQ4_0, kQ4_K, kBf16 };
std::string_view TensorTypeName(TensorType type);

// A matrix as the model file has it: `rows` rows of `cols` values, row by row. Quantised
// types hold blocks of 32 or 256 values along a row (kernels/block_format.h).
struct TensorView {
  TensorType type = TensorType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;  // Readable until LoadMatrix returns.
  std::string_view name{};          // For errors; readable as long.
};

// Indices into a backend's own tables; 0 is never one.
enum class MatrixId : int32_t {};
enum class VectorId : int32_t {};

struct LayerWeights {
  VectorId attention_norm{};  // [dim]
  MatrixId qkv{};             // [(heads + 2 kv_heads) * head_dim, dim]: q, k, v stacked
  MatrixId attention_out{};   // [dim, heads * head_dim]
  VectorId mlp_norm{};        // [dim]
  MatrixId gate_up{};         // [2 ffn, dim]: gate, up stacked
  MatrixId down{};            // [dim, ffn]
};

// ---- KV pages ----------------------------------------------------------------------

inline constexpr int kPageTokens = 64;  // Positions in one page; fixed by the merge tree.
inline constexpr int kTreeGroup = 4;    // Pages folded first in the merge tree.

// Pages that hold `tokens` positions.
inline constexpr int64_t PagesFor(int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

// Index of a page in the backend's pool.
using PageId = int32_t;

enum class KvDtype : uint8_t { kF32, kF16, kBf16, kInt8 };
std::string_view KvDtypeName(KvDtype dtype);

// How the bytes of a page are arranged. Stored with every page that leaves the process.
// Ids are never reused; bits change -> new version.
struct PageLayout {
  uint16_t id = 0;       // kPageLayoutF32, kPageLayoutF16, ...
  uint16_t version = 0;  // Of this id.
};
// Per layer and KV head: K as 4 blocks of 16 positions, [block][head_dim][16], then V as
// [64][head_dim].
inline constexpr PageLayout kPageLayoutF32{.id = 1, .version = 1};
inline constexpr PageLayout kPageLayoutF16{.id = 2, .version = 1};
// Per layer and KV head: kernels/kv_page_format.h.
inline constexpr PageLayout kPageLayoutInt8{.id = 3, .version = 1};
inline constexpr PageLayout kPageLayoutBf16{.id = 4, .version = 1};  // As kPageLayoutF16.

// Whether a sequence's current chunk has a form of its own (an open page, f16, in the
// layout of kPageLayoutF16): a query reads its own chunk there, every earlier one from
// its page. The page of a chunk is written once, when its 64th position is computed.
inline constexpr bool HasOpenPages(KvDtype dtype) { return dtype == KvDtype::kInt8; }

struct KvGeometry {
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  KvDtype dtype = KvDtype::kF16;
};

// ---- One step ----------------------------------------------------------------------

enum class RopeStyle : uint8_t {
  kAdjacentPairs,  // (x[2i], x[2i+1]): GGUF "llama"
  kHalves,         // (x[i], x[i + head_dim/2]): GPT-NeoX
};

// What the compute graph needs to know of a model, fixed at load.
struct GraphShape {
  int32_t layers = 0;
  int32_t dim = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t ffn = 0;
  int32_t vocab = 0;
  int32_t context = 0;    // Positions for which rope tables are made.
  int32_t rope_dims = 0;  // Leading channels of a head that are rotated.
  RopeStyle rope_style = RopeStyle::kAdjacentPairs;
  float norm_eps = 0.0f;
  // Angle per position of each rotated pair; [rope_dims / 2].
  std::vector<double> rope_inverse_frequencies;
};

struct BackendLimits {
  int32_t max_rows = 0;        // Rows of one step.
  int32_t max_logit_rows = 0;  // Logit rows of one step.
  int32_t max_sequences = 0;   // Sequences in one step.
  int64_t max_pages = 0;       // Pages of the KV pool.
};

// Consecutive new tokens of one sequence inside a step.
struct SequenceRows {
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t first_position = 0;     // Of first_row; later rows follow one by one.
  std::span<const PageId> pages;  // Page i holds positions [64 i, 64 i + 64).
  // With open pages: holds the positions of the chunk of first_position that were
  // computed before, and afterwards those of the last row's chunk (unless it is whole).
  PageId open_page = -1;
};

struct StepBatch {
  std::span<const TokenId> tokens;  // [rows]
  std::span<const SequenceRows> sequences;
  std::span<const int32_t> logit_rows;  // Ascending rows whose logits are wanted.
};

// One unit of attention work: some rows of one sequence and one KV head over a range of
// tree groups. Items that cover all groups of their rows write the output; the others
// write one partial per group, which are folded left to right afterwards.
struct AttendItem {
  int32_t sequence = 0;  // Index into StepBatch::sequences.
  int32_t kv_head = 0;
  int32_t first_row = 0;  // Absolute row of the step.
  int32_t rows = 0;
  int32_t first_group = 0;
  int32_t groups = 0;
};

struct AttendPlan {
  std::span<const AttendItem> items;  // Heaviest first.
};

// How often a token has come so far.
struct TokenCount {
  TokenId token = 0;
  int32_t in_answer = 0;  // 0: it stands in the prompt alone.
};

// How to draw one token from one logit row. See SamplingParams for the order. Several
// specs may read one row; a row's logits are never changed.
struct SampleSpec {
  int32_t logit_row = 0;  // Index into StepBatch::logit_rows.
  float temperature = 0.0f;
  int32_t top_k = 0;
  float typical_p = 1.0f;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  // Readable until Sample returns. Every token is inside the vocabulary.
  std::span<const LogitBias> logit_bias{};  // Each token at most once.
  std::span<const TokenCount> history{};    // What the penalties see; each token once.
  std::span<const TokenId> banned{};        // Never drawn; some other token is left.
  // Not drawn but given: the prompt's next token, whose log-probability is wanted. -1:
  // draw one.
  TokenId given = -1;
  // Log-probabilities of the token and of so many best ones; -1: none. They are those of
  // the row as it is: log softmax over the whole vocabulary.
  int32_t logprobs = -1;
  // The counter-based generator is keyed by these three alone.
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint32_t token_index = 0;  // Of the answer: 0 for the first sampled token.
};

struct SampleResult {
  TokenId token = -1;
  bool finite = true;    // False: a NaN or +inf among the logits; `token` is not valid.
  float logprob = 0.0f;  // Of `token`, if spec.logprobs >= 0.
  std::span<const TopLogprob> top{};  // [spec.logprobs]; readable until the next step.
};

inline constexpr int kMaxTopLogprobs = 20;

struct BackendInfo {
  std::string name;         // "cpu/avx512"
  std::string numerics_id;  // Equal ids promise equal bits for equal weights.
  int32_t threads = 0;
  int32_t gpu_index = 0;         // Of the GPU, as CUDA counts...
  std::string gpu_pci_id{};      // ... and where it is; empty: no GPU.
  int64_t gpu_memory_bytes = 0;  // All that the GPU has.
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual BackendInfo info() const = 0;

  // ---- At start, in this order.
  virtual Status Configure(const GraphShape& shape, const BackendLimits& limits) = 0;
  // Copies (and repacks) matrices stacked by rows into one; all have the same cols.
  virtual StatusOr<MatrixId> LoadMatrix(std::span<const TensorView> stacked) = 0;
  virtual StatusOr<VectorId> LoadVector(std::span<const float> values) = 0;
  // Whether CreateKvPool could make such pages; else Unimplemented with kv.dtype.
  virtual Status CheckKv(const KvGeometry&) const { return OkStatus(); }
  // Reserves the pool (address space; memory is touched when a page is used), and
  // BackendLimits::max_sequences open pages if the dtype has them.
  virtual Status CreateKvPool(const KvGeometry& geometry, int64_t pages) = 0;
  virtual int64_t page_bytes() const = 0;
  virtual int64_t open_page_bytes() const { return 0; }  // 0: there are none.
  virtual PageLayout page_layout() const = 0;

  // ---- Pages. Both are ordered with the steps.
  // Bytes of pages that left or enter the process (session store, tests).
  virtual Status ReadPage(PageId page, std::span<std::byte> bytes) = 0;
  virtual Status WritePage(PageId page, std::span<const std::byte> bytes) = 0;
  // Copies the first `tokens` positions of a page, for copy-on-write of a shared head;
  // with open pages, of an open page (a closed one has no heads).
  virtual Status CopyPageHead(PageId from, PageId to, int32_t tokens) = 0;

  // ---- One step: BeginStep, Embed, per layer the four, Head, Sample.
  // The spans of `batch` stay readable until the step's Sample (or Head) returned.
  virtual Status BeginStep(const StepBatch& batch, const AttendPlan& plan) = 0;
  // x = table[token]   (dequantised)
  virtual Status Embed(MatrixId table) = 0;
  // h = RmsNorm(x) * weight; q, k, v = h . W^T; rotate q and k; append k, v to the pages.
  virtual Status NormQkvRopeAppend(int32_t layer, const LayerWeights& weights) = 0;
  // Exact attention on the merge tree, over the pages alone (also for this step's rows).
  virtual Status Attend(int32_t layer) = 0;
  // x += attention . W^T
  virtual Status OutProjAdd(const LayerWeights& weights) = 0;
  // h = RmsNorm(x) * weight; x += (silu(h . G^T) * (h . U^T)) . D^T
  virtual Status Mlp(const LayerWeights& weights) = 0;
  // logits = (RmsNorm(x) * norm) . table^T, for the logit rows only.
  virtual Status Head(VectorId norm, MatrixId table) = 0;
  // Draws one token per spec; results[i] belongs to specs[i].
  virtual Status Sample(std::span<const SampleSpec> specs,
                        std::span<SampleResult> results) = 0;
  // The logits of one logit row of the last step, [vocab]; valid until the next step.
  virtual StatusOr<std::span<const float>> Logits(int32_t logit_row) = 0;
};

}  // namespace renga
