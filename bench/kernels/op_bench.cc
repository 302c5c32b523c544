// Every op alone, on the shapes of SmolLM2-135M, for each instruction set of the machine.
//
//   op_bench [--benchmark_filter=matmul/avx512] [--benchmark_repetitions=9]
//   op_bench --roofs[=kernels/README.md]   a table of the hot ops with their shares of
//                                          what the machine could do, printed or written
//
// Products report GMAC/s and the GB/s of weights read; they run over the thread pool with
// 1 and with 2 threads (last argument), and walk through several copies of the weights
// (at least 64 MB) where a copy would fit a cache, so that one row is bound by memory as
// in a decode step. Attention reports GB/s of keys and values, from memory (cached:0) or
// cache; on a busy machine read the CPU column of the one-thread lines. attention_int8
// runs f16 and int8 pages in turns and reports how many times faster int8 was.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "backend/thread_pool.h"
#include "base/aligned_buffer.h"
#include "bench/kernels/roof_table.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/logprobs.h"
#include "kernels/sampling.h"

namespace renga {
namespace {

struct Shape {
  const char* name;
  WeightType type;
  int64_t outputs;
  int64_t cols;
};

constexpr Shape kShapes[] = {{"576x576", WeightType::kQ4_1, 576, 576},
                             {"192x576", WeightType::kQ4_1, 192, 576},
                             {"1536x576", WeightType::kQ4_1, 1536, 576},
                             {"576x1536", WeightType::kQ4_1, 576, 1536},
                             {"49152x576_q8_0", WeightType::kQ8_0, 49152, 576}};

constexpr int64_t kWorkingSet = int64_t{64} << 20;

void FillRandom(std::span<uint8_t> bytes) {
  std::mt19937_64 random(1);
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const uint64_t word = random() & 0x3FFF3FFF3FFF3FFFull;  // Any f16 in it is finite.
    __builtin_memcpy(&bytes[i], &word, 8);
  }
}

std::vector<float> RandomFloats(int64_t n) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

// Quantised rows of random values.
class Codes {
 public:
  // All blocks coarse, or none.
  Codes(const CpuOps& ops, int64_t rows, int64_t cols, bool coarse)
      : codes_(static_cast<size_t>((rows + 7) / 8 * 8 * cols * kCodePlanes)),
        floats_(codes_.size() / 64 * 2),
        sums_(codes_.size() / 64),
        fine_(codes_.size() / 512) {
    const std::vector<float> x = RandomFloats(rows * cols);
    ops.quantise_rows({.x = x.data(),
                       .x_stride = cols,
                       .rows = rows,
                       .cols = cols,
                       .coarse = coarse ? 1e9f : 0.0f,
                       .out = rows_()});
  }
  QuantRows rows_() {
    return {codes_.data(), floats_.data(), floats_.data() + sums_.size(), sums_.data(),
            fine_.data()};
  }

 private:
  std::vector<int8_t> codes_;
  std::vector<float> floats_;
  std::vector<int32_t> sums_;
  std::vector<uint8_t> fine_;
};

void Matmul(benchmark::State& state, const CpuOps* ops, const Shape& shape) {
  const int64_t rows = state.range(0);
  ThreadPool pool(static_cast<int>(state.range(1)));
  const int64_t panels = shape.outputs / kPanelRows;
  const int64_t panel_bytes = PanelBytes(shape.type, shape.cols);
  const int64_t copies = std::max<int64_t>(1, kWorkingSet / (panels * panel_bytes));
  AlignedBuffer weights =
      AlignedBuffer::Allocate(static_cast<size_t>(copies * panels * panel_bytes));
  FillRandom(weights.As<uint8_t>());
  Codes codes(*ops, rows, shape.cols, state.range(2) != 0);
  AlignedBuffer out =
      AlignedBuffer::Allocate(static_cast<size_t>(rows * shape.outputs * 4));
  const auto op = shape.type == WeightType::kQ4_1 ? ops->matmul_q4_1 : ops->matmul_q8_0;
  const int64_t piece = std::max<int64_t>(1, panels / (pool.threads() * 16));
  int64_t copy = 0;
  for (auto _ : state) {
    const uint8_t* data = weights.As<uint8_t>().data() + copy * panels * panel_bytes;
    copy = (copy + 1) % copies;
    pool.Run((panels + piece - 1) / piece, [&](int64_t i, int) {
      const int64_t first = i * piece;
      const int64_t count = std::min(piece, panels - first);
      op({.panels = data + first * panel_bytes,
          .panel_count = count,
          .cols = shape.cols,
          .outputs = count * kPanelRows,
          .quant = codes.rows_(),
          .rows = rows,
          .out = out.As<float>().data() + first * kPanelRows,
          .out_stride = shape.outputs});
    });
    benchmark::ClobberMemory();
  }
  const double runs = static_cast<double>(state.iterations());
  const double macs = static_cast<double>(rows * shape.outputs * shape.cols);
  state.counters["GMAC/s"] =
      benchmark::Counter(runs * macs / 1e9, benchmark::Counter::kIsRate);
  state.counters["GB/s"] =
      benchmark::Counter(runs * static_cast<double>(panels * panel_bytes) / 1e9,
                         benchmark::Counter::kIsRate);
}

// `rows` rows of one sequence (3 query heads of one KV head, head_dim 64), f16 pages.
void Attention(benchmark::State& state, const CpuOps* ops) {
  constexpr int64_t kHeadDim = 64, kHeads = 3, kPageBytes = 128 * kHeadDim * 2;
  const int64_t length = state.range(0);
  const int64_t rows = state.range(1);
  const int64_t pages = (length + 63) / 64;
  const bool cached = state.range(2) != 0;
  const int64_t sequences =
      cached ? 1 : std::max<int64_t>(1, kWorkingSet / (pages * kPageBytes));
  AlignedBuffer pool =
      AlignedBuffer::Allocate(static_cast<size_t>(sequences * pages * kPageBytes));
  FillRandom(pool.As<uint8_t>());
  std::vector<int32_t> ids(static_cast<size_t>(pages));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const std::vector<float> q = RandomFloats(rows * kHeads * kHeadDim);
  std::vector<float> out(q.size());
  int64_t sequence = 0;
  for (auto _ : state) {
    ops->attend_f16({.q = q.data(),
                     .q_stride = kHeads * kHeadDim,
                     .out = out.data(),
                     .out_stride = kHeads * kHeadDim,
                     .rows = static_cast<int32_t>(rows),
                     .heads = kHeads,
                     .head_dim = kHeadDim,
                     .first_position = length - rows,
                     .pool = pool.As<uint8_t>().data() + sequence * pages * kPageBytes,
                     .page_stride = kPageBytes,
                     .pages = ids.data(),
                     .first_group = 0,
                     .groups = (length + 255) / 256});
    sequence = (sequence + 1) % sequences;
    benchmark::ClobberMemory();
  }
  const double runs = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(
      runs * static_cast<double>(pages * kPageBytes) / 1e9, benchmark::Counter::kIsRate);
  state.counters["GMAC/s"] = benchmark::Counter(
      runs * static_cast<double>(rows * kHeads * length * kHeadDim * 2) / 1e9,
      benchmark::Counter::kIsRate);
}

// One closed chunk of one KV head, in both forms.
struct ClosedChunk {
  static constexpr int64_t kHeadDim = 64;
  std::vector<uint8_t> open = std::vector<uint8_t>(128 * kHeadDim * 2);
  std::vector<uint8_t> closed = std::vector<uint8_t>(Int8PageOf(kHeadDim).bytes);

  explicit ClosedChunk(const CpuOps& ops) {
    const std::vector<float> x = RandomFloats(128 * kHeadDim);
    for (int32_t t = 0; t < 64; ++t) {
      ops.kv_append_f16({.k = x.data() + t * kHeadDim,
                         .v = x.data() + (64 + t) * kHeadDim,
                         .page = open.data(),
                         .head_dim = kHeadDim,
                         .slot = t});
    }
    Close(ops);
  }
  void Close(const CpuOps& ops) {
    ops.kv_close_int8({.open = open.data(), .page = closed.data(), .head_dim = kHeadDim});
  }
};

// A KV pool of `sequences` sequences of `length` positions, 30 KV heads side by side in a
// page, as the layers of a model. Every head of every page is `head`.
struct KvMemory {
  static constexpr int64_t kKvHeads = 30;

  int64_t head_bytes;
  int64_t pages;  // Of one sequence.
  AlignedBuffer buffer;

  KvMemory(std::span<const uint8_t> head, int64_t length, int64_t sequences)
      : head_bytes(static_cast<int64_t>(head.size())), pages(length / 64) {
    const size_t count = static_cast<size_t>(sequences * pages * kKvHeads);
    buffer = AlignedBuffer::Allocate(count * head.size());
    for (size_t i = 0; i < count; ++i) {
      std::copy(head.begin(), head.end(), buffer.As<uint8_t>().data() + i * head.size());
    }
  }
  const uint8_t* Base(int64_t sequence, int64_t kv_head) const {
    return buffer.As<uint8_t>().data() +
           (sequence * pages * kKvHeads + kv_head) * head_bytes;
  }
};

// The attention of one layer after another of a decode step: 3 query heads for each KV
// head, one row of each sequence.
class DecodeStep {
 public:
  DecodeStep(const ClosedChunk& chunk, int64_t length, int64_t sequences)
      : length_(length), sequences_(sequences), own_(chunk.open.data()) {
    for (int32_t i = 0; i < length / 64; ++i) ids_.push_back(i);
    for (float& value : q_) value *= 0.18f;  // log2(e) / sqrt(64)
    out_.resize(static_cast<size_t>(sequences * KvMemory::kKvHeads * kWidth));
  }

  // Returns the seconds.
  double Run(ThreadPool& pool, const KvMemory& memory,
             void (*attend)(const AttendArgs&)) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    pool.Run(sequences_ * KvMemory::kKvHeads, [&](int64_t i, int) {
      attend({.q = q_.data(),
              .q_stride = kWidth,
              .out = out_.data() + i * kWidth,
              .out_stride = kWidth,
              .rows = 1,
              .heads = kHeads,
              .head_dim = ClosedChunk::kHeadDim,
              .first_position = length_ - 1,
              .pool = memory.Base(i / KvMemory::kKvHeads, i % KvMemory::kKvHeads),
              .page_stride = KvMemory::kKvHeads * memory.head_bytes,
              .pages = ids_.data(),
              .own = &own_,
              .first_own_chunk = length_ / 64 - 1,
              .first_group = 0,
              .groups = (length_ + 255) / 256});
    });
    benchmark::ClobberMemory();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  static constexpr int64_t kHeads = 3, kWidth = kHeads * ClosedChunk::kHeadDim;
  int64_t length_;
  int64_t sequences_;
  const uint8_t* own_;
  std::vector<int32_t> ids_;
  std::vector<float> q_ = RandomFloats(kWidth);
  std::vector<float> out_;
};

// Over int8 and over f16 pages in turns; the time is that of int8.
void AttentionInt8(benchmark::State& state, const CpuOps* ops) {
  const int64_t length = state.range(0);
  const int64_t sequences = state.range(1);
  ThreadPool pool(static_cast<int>(state.range(2)));
  const ClosedChunk chunk(*ops);
  const KvMemory halves(chunk.open, length, sequences);
  const KvMemory bytes(chunk.closed, length, sequences);
  DecodeStep step(chunk, length, sequences);
  double f16_seconds = 0.0;
  double int8_seconds = 0.0;
  for (auto _ : state) {
    f16_seconds += step.Run(pool, halves, ops->attend_f16);
    const double seconds = step.Run(pool, bytes, ops->attend_int8);
    int8_seconds += seconds;
    state.SetIterationTime(seconds);
  }
  const auto rate = [&](const KvMemory& memory, double seconds) {
    return static_cast<double>(state.iterations()) *
           static_cast<double>(memory.buffer.size()) / seconds / 1e9;
  };
  state.counters["f16_GB/s"] = rate(halves, f16_seconds);
  state.counters["int8_GB/s"] = rate(bytes, int8_seconds);
  state.counters["speedup"] = f16_seconds / int8_seconds;
}

void KvClose(benchmark::State& state, const CpuOps* ops) {
  ClosedChunk chunk(*ops);
  for (auto _ : state) {
    chunk.Close(*ops);
    benchmark::ClobberMemory();
  }
}

void RowOps(benchmark::State& state, const CpuOps* ops) {
  constexpr int64_t kCols = 576;
  const int64_t rows = state.range(0);
  const std::vector<float> x = RandomFloats(rows * kCols);
  std::vector<float> out(x.size());
  Codes codes(*ops, rows, kCols, false);
  for (auto _ : state) {
    for (int64_t row = 0; row < rows; ++row) {
      ops->rms_norm(x.data() + row * kCols, x.data(), kCols, 1e-5f,
                    out.data() + row * kCols);
    }
    ops->quantise_rows({.x = out.data(),
                        .x_stride = kCols,
                        .rows = rows,
                        .cols = kCols,
                        .coarse = 2.56f,
                        .out = codes.rows_()});
    benchmark::ClobberMemory();
  }
}

void Rope(benchmark::State& state, const CpuOps* ops) {
  std::vector<float> x = RandomFloats(12 * 64);
  const std::vector<float> cosines(32, 0.8f), sines(32, 0.6f);
  for (auto _ : state) {
    ops->rope({.x = x.data(),
               .heads = 12,
               .head_dim = 64,
               .rope_dims = 64,
               .cos = cosines.data(),
               .sin = sines.data()});
    benchmark::ClobberMemory();
  }
}

// A row that is about as peaked as a language model's.
class LogitRow {
 public:
  static constexpr int64_t kVocab = 49152;

  LogitRow() : logits_(RandomFloats(kVocab)) {
    for (float& logit : logits_) logit *= 3.0f;
  }
  const float* logits() const { return logits_.data(); }
  const SampleScratch& scratch() const { return scratch_; }

 private:
  std::vector<float> logits_;
  AlignedBuffer memory_ = AlignedBuffer::Allocate(SampleScratchBytes(kVocab));
  SampleScratch scratch_ = MakeSampleScratch(memory_.data(), kVocab);
};

void Sampling(benchmark::State& state, const CpuOps* ops, SampleArgs args) {
  const LogitRow row;
  args.logits = row.logits();
  args.vocab = LogitRow::kVocab;
  for (auto _ : state) {
    ++args.token_index;
    benchmark::DoNotOptimize(SampleToken(*ops, args, row.scratch()));
  }
}

void Logprobs(benchmark::State& state, const CpuOps* ops) {
  const LogitRow row;
  ScoredToken top[20];
  for (auto _ : state) {
    benchmark::DoNotOptimize(TokenLogprobs(*ops,
                                           {.logits = row.logits(),
                                            .vocab = LogitRow::kVocab,
                                            .token = 7,
                                            .top = static_cast<int32_t>(state.range(0)),
                                            .out = top},
                                           row.scratch()));
  }
}

void RegisterSampling(const std::string& isa, const CpuOps* ops) {
  const auto sampling = [&](const char* name, const SampleArgs& args) {
    benchmark::RegisterBenchmark(
        ("sampling/" + isa + "/" + name).c_str(),
        [ops, args](benchmark::State& state) { Sampling(state, ops, args); });
  };
  sampling("greedy", {.temperature = 0.0f});
  sampling("temperature", {});
  sampling("top_k_40", {.top_k = 40});
  sampling("top_k_2000", {.top_k = 2000});
  sampling("typical_p_0.9", {.typical_p = 0.9f});
  sampling("top_p_0.9", {.top_p = 0.9f});
  sampling("min_p_0.05", {.min_p = 0.05f});
  sampling("all", {.temperature = 0.7f, .top_k = 100, .top_p = 0.9f, .min_p = 0.05f});
  sampling("top_p_0.9_flat", {.temperature = 3.0f, .top_p = 0.9f});
  benchmark::RegisterBenchmark(("logprobs/" + isa).c_str(),
                               [ops](benchmark::State& state) { Logprobs(state, ops); })
      ->ArgNames({"top"})
      ->Arg(0)
      ->Arg(20);
}

void Register() {
  for (const char* name : kCpuOpsName) {
    const CpuOps* ops = FindCpuOps(name);
    if (ops == nullptr) continue;
    const std::string isa = name;
    for (const Shape& shape : kShapes) {
      auto* bench = benchmark::RegisterBenchmark(
          ("matmul/" + isa + "/" + shape.name).c_str(),
          [ops, shape](benchmark::State& state) { Matmul(state, ops, shape); });
      bench->UseRealTime()->ArgNames({"rows", "threads", "coarse"});
      bench->ArgsProduct({{1, 8, 32, 256}, {1, 2}, {0, 1}});
    }
    benchmark::RegisterBenchmark(
        ("attention/" + isa).c_str(),
        [ops](benchmark::State& state) { Attention(state, ops); })
        ->ArgNames({"length", "rows", "cached"})
        ->Args({128, 1, 0})
        ->Args({128, 1, 1})
        ->Args({1024, 1, 0})
        ->Args({1024, 1, 1})
        ->Args({4096, 1, 0})
        ->Args({256, 256, 1})
        ->Args({1024, 64, 0});
    benchmark::RegisterBenchmark(
        ("attention_int8/" + isa).c_str(),
        [ops](benchmark::State& state) { AttentionInt8(state, ops); })
        ->UseManualTime()
        ->ArgNames({"length", "sequences", "threads"})
        ->ArgsProduct({{4096, 8192}, {1, 8}, {1, 2}});
    benchmark::RegisterBenchmark(("kv_close_int8/" + isa).c_str(),
                                 [ops](benchmark::State& state) { KvClose(state, ops); });
    benchmark::RegisterBenchmark(("norm_quantise/" + isa).c_str(),
                                 [ops](benchmark::State& state) { RowOps(state, ops); })
        ->ArgNames({"rows"})
        ->Arg(1)
        ->Arg(8);
    benchmark::RegisterBenchmark(("rope/" + isa).c_str(),
                                 [ops](benchmark::State& state) { Rope(state, ops); });
    RegisterSampling(isa, ops);
  }
}

}  // namespace
}  // namespace renga

namespace {

// The ops that a step spends its time in, on the best op table.
std::string HotOps() {
  const std::string isa = renga::BestCpuOps()->name;
  return "(matmul/" + isa + "/(1536x576|576x1536|49152x576_q8_0)/.*threads:2.*)|" +
         "(attention/" + isa + "/.*)|(attention_int8/" + isa + "/.*sequences:8.*)";
}

// `path`: empty to print.
int RunRoofs(const std::string& path) {
  renga::RoofTable table(renga::kWorkingSet);
  benchmark::RunSpecifiedBenchmarks(&table);
  if (path.empty()) {
    std::fputs(table.Markdown().c_str(), stdout);
  } else if (!renga::WriteBetweenMarks(path, table.Markdown())) {
    std::fprintf(stderr, "%s: cannot be changed, or has no marks for roofs\n",
                 path.c_str());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  renga::Register();
  const std::string first = argc > 1 ? argv[1] : "";
  const bool roofs = first == "--roofs" || first.rfind("--roofs=", 0) == 0;
  std::vector<char*> arguments(argv, argv + argc);
  std::string filter = "--benchmark_filter=" + HotOps();
  if (roofs) arguments[1] = filter.data();  // A filter that comes later wins.
  int count = argc;
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
  if (roofs) return RunRoofs(first.size() > 8 ? first.substr(8) : "");
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
