#include "app/speed_probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "base/aligned_buffer.h"
#include "base/status_macros.h"
#include "model/chunk_plan.h"

namespace renga {
namespace {

constexpr int32_t kRows = 256;  // Of a step: a prompt, not an answer.
constexpr int64_t kMadeUpDim = 1024;
constexpr int64_t kMadeUpFfn = 2816;
constexpr size_t kPieceWords = size_t{1} << 17;  // 1 MiB.

// Of a measurement, the best of which counts: whatever else runs only makes it slower.
constexpr int kRounds = 10;

double SecondsSince(TimePoint begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

uint64_t Sum(std::span<const uint64_t> words) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= words.size(); i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

// Reads `words` round and round until `until`; returns the bytes read.
int64_t ReadUntil(std::span<const uint64_t> words, TimePoint until,
                  std::atomic<uint64_t>& keep) {
  int64_t bytes = 0;
  size_t at = 0;
  uint64_t sum = 0;
  while (std::chrono::steady_clock::now() < until) {
    const size_t count = std::min(kPieceWords, words.size() - at);
    sum += Sum(words.subspan(at, count));
    bytes += static_cast<int64_t>(count * sizeof(uint64_t));
    at = at + count < words.size() ? at + count : 0;
  }
  keep += sum;  // So that the reading is not left out.
  return bytes;
}

// Runs `work` for 0 to threads - 1 at the same time; this thread is 0.
template <class Work>
void ForEachThread(int32_t threads, const Work& work) {
  std::vector<std::thread> others;
  for (int32_t i = 1; i < threads; ++i) others.emplace_back(work, static_cast<size_t>(i));
  work(size_t{0});
  for (std::thread& other : others) other.join();
}

// Q4_1: per 32 values two halves (step and least value) and 16 bytes of codes.
std::vector<std::byte> RandomQ41(int64_t rows, int64_t cols, std::mt19937_64& random) {
  constexpr size_t kBlockBytes = 20;
  constexpr uint16_t kStep = 0x2000;   // 2^-7
  constexpr uint16_t kLeast = 0xac00;  // -2^-4
  std::vector<std::byte> bytes(static_cast<size_t>(rows * cols / 32) * kBlockBytes);
  for (size_t at = 0; at < bytes.size(); at += kBlockBytes) {
    const uint64_t codes[2] = {random(), random()};
    std::memcpy(&bytes[at], &kStep, sizeof kStep);
    std::memcpy(&bytes[at + 2], &kLeast, sizeof kLeast);
    std::memcpy(&bytes[at + 4], codes, sizeof codes);
  }
  return bytes;
}

// Around the layer, as small a model as there can be.
GraphShape ShapeOf(const ProbeLayer& layer) {
  return {.layers = 1,
          .dim = static_cast<int32_t>(layer.gate_up[0].cols),
          .heads = 1,
          .kv_heads = 1,
          .head_dim = 16,
          .ffn = static_cast<int32_t>(layer.gate_up[0].rows),
          .vocab = kRows,
          .context = kRows,
          .rope_dims = 0,
          .rope_style = RopeStyle::kAdjacentPairs,
          .norm_eps = 1e-5f,
          .rope_inverse_frequencies = {}};
}

std::vector<float> RandomRows(int64_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

struct Loaded {
  MatrixId embedding{};
  LayerWeights weights;
};

StatusOr<Loaded> Load(Backend& backend, const GraphShape& shape,
                      const ProbeLayer& layer) {
  std::mt19937_64 random(2);
  const std::vector<float> rows = RandomRows(int64_t{kRows} * shape.dim, random);
  TensorView table{.type = TensorType::kF32,
                   .rows = kRows,
                   .cols = shape.dim,
                   .data = reinterpret_cast<const std::byte*>(rows.data())};
  Loaded loaded;
  RENGA_ASSIGN_OR_RETURN(loaded.embedding, backend.LoadMatrix({&table, 1}));
  table.rows = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  LayerWeights& weights = loaded.weights;
  RENGA_ASSIGN_OR_RETURN(weights.qkv, backend.LoadMatrix({&table, 1}));
  RENGA_ASSIGN_OR_RETURN(weights.mlp_norm, backend.LoadVector(std::vector<float>(
                                               static_cast<size_t>(shape.dim), 1.0f)));
  weights.attention_norm = weights.mlp_norm;
  RENGA_ASSIGN_OR_RETURN(weights.gate_up, backend.LoadMatrix(layer.gate_up));
  RENGA_ASSIGN_OR_RETURN(weights.down, backend.LoadMatrix(layer.down));
  return loaded;
}

// A whole step, because a backend may leave all of its work to the last call; that is the
// one that is timed. Before it there is next to nothing to do.
StatusOr<double> SecondsOfMlp(Backend& backend, const Loaded& loaded,
                              const StepBatch& batch, const AttendPlan& plan) {
  RENGA_RETURN_IF_ERROR(backend.BeginStep(batch, plan));
  RENGA_RETURN_IF_ERROR(backend.Embed(loaded.embedding));
  RENGA_RETURN_IF_ERROR(backend.NormQkvRopeAppend(0, loaded.weights));
  RENGA_RETURN_IF_ERROR(backend.Attend(0));
  const TimePoint start = std::chrono::steady_clock::now();
  RENGA_RETURN_IF_ERROR(backend.Mlp(loaded.weights));
  return SecondsSince(start);
}

}  // namespace

double MeasureReadBandwidth(int32_t threads, int64_t bytes, Duration time) {
  AlignedBuffer buffer = AlignedBuffer::Allocate(static_cast<size_t>(bytes));
  if (buffer.data() == nullptr) return 0.0;
  const std::span<uint64_t> words = buffer.As<uint64_t>();
  const size_t share = words.size() / static_cast<size_t>(threads);
  if (share == 0) return 0.0;
  ForEachThread(threads, [&](size_t thread) {
    // Touched: the pages are there.
    const std::span<uint64_t> own = words.subspan(thread * share, share);
    std::fill(own.begin(), own.end(), uint64_t{1});
  });
  double best = 0.0;
  for (int round = 0; round < kRounds; ++round) {
    const TimePoint begin = std::chrono::steady_clock::now();
    const TimePoint until = begin + time / kRounds;
    std::atomic<int64_t> read{0};
    std::atomic<uint64_t> keep{0};
    ForEachThread(threads, [&](size_t thread) {
      read += ReadUntil(words.subspan(thread * share, share), until, keep);
    });
    best = std::max(best, static_cast<double>(read) / SecondsSince(begin));
  }
  return best;
}

MadeUpLayer::MadeUpLayer() {
  std::mt19937_64 random(1);
  gate_ = RandomQ41(kMadeUpFfn, kMadeUpDim, random);
  up_ = RandomQ41(kMadeUpFfn, kMadeUpDim, random);
  down_ = RandomQ41(kMadeUpDim, kMadeUpFfn, random);
}

ProbeLayer MadeUpLayer::views() const {
  const auto view = [](const std::vector<std::byte>& bytes, int64_t rows, int64_t cols) {
    return TensorView{
        .type = TensorType::kQ4_1, .rows = rows, .cols = cols, .data = bytes.data()};
  };
  return {
      .gate_up = {view(gate_, kMadeUpFfn, kMadeUpDim), view(up_, kMadeUpFfn, kMadeUpDim)},
      .down = {view(down_, kMadeUpDim, kMadeUpFfn)}};
}

StatusOr<double> MeasureProducts(Backend& backend, const ProbeLayer& layer,
                                 Duration time) {
  const GraphShape shape = ShapeOf(layer);
  const BackendLimits limits{.max_rows = kRows,
                             .max_logit_rows = 1,
                             .max_sequences = 1,
                             .max_pages = PagesFor(kRows)};
  RENGA_RETURN_IF_ERROR(backend.Configure(shape, limits));
  RENGA_ASSIGN_OR_RETURN(const Loaded loaded, Load(backend, shape, layer));
  RENGA_RETURN_IF_ERROR(backend.CreateKvPool(
      {.layers = 1, .kv_heads = 1, .head_dim = shape.head_dim}, PagesFor(kRows)));

  std::vector<TokenId> tokens(kRows);
  for (int32_t i = 0; i < kRows; ++i) tokens[static_cast<size_t>(i)] = i;
  std::vector<PageId> pages(static_cast<size_t>(PagesFor(kRows)));
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<PageId>(i);
  const SequenceRows sequence{
      .first_row = 0, .rows = kRows, .first_position = 0, .pages = pages};
  const StepBatch batch{.tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = {}};
  ChunkPlan plan(shape.kv_heads, limits);
  const AttendPlan attend{.items = plan.Build(batch.sequences)};
  RENGA_RETURN_IF_ERROR(  // Touches everything.
      SecondsOfMlp(backend, loaded, batch, attend).status());
  const TimePoint begin = std::chrono::steady_clock::now();
  double best = 1e9;
  do {
    RENGA_ASSIGN_OR_RETURN(const double seconds,
                           SecondsOfMlp(backend, loaded, batch, attend));
    best = std::min(best, seconds);
  } while (std::chrono::steady_clock::now() - begin < time);
  return 3.0 * kRows * static_cast<double>(shape.dim) * static_cast<double>(shape.ffn) /
         std::max(best, 1e-9);
}

}  // namespace renga
