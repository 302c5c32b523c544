// One step of the engine's work on a real model: prefill of 512 tokens, and decode at
// batch 1, 8, 32 and 64 with 128 tokens of context. Everything a step computes is
// included: embedding, layers, head, greedy sampling.
//
//   step_bench MODEL.gguf [--isa auto] [--threads 0] [--repetitions 15] [--dtype f16]
//              [--max-batch 64] [--prefill 512] [--device cpu|cuda:N] [--graphs 1]
//
// On a GPU there is no table of parts: a step runs as a whole when its last call comes.
// Prints a table (median and the worst 1 % of the repetitions' time per step, tokens/s of
// the median), another one that shows where the time of a step goes, and one JSON line.
// The memory-bandwidth reading beside it is what this machine streams while it sums 256
// MiB with as many threads, the better of a reading before and one after the steps:
// decode at batch 1 reads every weight and the sequence's pages once, so those bytes *
// tokens/s cannot exceed it. Correctness first: a run whose greedy tokens at batch 8
// differ from those at batch 1 ends with an error.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu_backend.h"
#include "backend/cuda_backend.h"
#include "backend/cuda_device.h"
#include "base/status_macros.h"
#include "base/system_clock.h"
#include "bench/engine/timed_backend.h"
#include "model/transformer.h"

namespace renga {
namespace {

constexpr int32_t kContextTokens = 128;
constexpr int32_t kMaxBatch = 64;
constexpr int64_t kPagesEach = 3;  // 128 tokens and up to 64 decoded ones.
constexpr int64_t kPages = kMaxBatch * kPagesEach;
constexpr int32_t kMostPrefill = kPages * kPageTokens;

struct Arguments {
  std::string model;
  std::string isa = "auto";
  int32_t threads = 0;
  int32_t repetitions = 15;
  int32_t max_batch = kMaxBatch;  // Larger batches are left out.
  int32_t prefill = 512;
  std::string precision = "fast";
  std::string device = "cpu";
  bool graphs = true;  // On a GPU.
  KvDtype dtype = KvDtype::kF16;
};

struct Timing {
  std::string name;
  int32_t tokens = 0;  // Of one step.
  double median_ms = 0;
  double p99_ms = 0;
  std::array<double, TimedBackend::kParts> parts_ms{};  // Means.

  double tokens_per_second() const { return tokens * 1000.0 / median_ms; }
};

StatusOr<KvDtype> ParseDtype(const std::string& name) {
  for (const KvDtype dtype : {KvDtype::kF16, KvDtype::kF32, KvDtype::kInt8}) {
    if (name == KvDtypeName(dtype)) return dtype;
  }
  return InvalidArgument("--dtype", "'" + name + "' is none of f16, f32, int8");
}

StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--", 0) != 0) {
      arguments.model = word;
      continue;
    }
    if (i + 1 == argc) return InvalidArgument(word, "needs a value");
    const std::string value = argv[++i];
    if (word == "--model") {
      arguments.model = value;
    } else if (word == "--isa") {
      arguments.isa = value;
    } else if (word == "--precision") {
      arguments.precision = value;
    } else if (word == "--threads") {
      arguments.threads = std::atoi(value.c_str());
    } else if (word == "--repetitions") {
      arguments.repetitions = std::max(1, std::atoi(value.c_str()));
    } else if (word == "--device") {
      arguments.device = value;
    } else if (word == "--graphs") {
      arguments.graphs = value != "0";
    } else if (word == "--prefill") {
      arguments.prefill = std::clamp(std::atoi(value.c_str()), 1, kMostPrefill);
    } else if (word == "--max-batch") {
      arguments.max_batch = std::max(1, std::atoi(value.c_str()));
    } else if (word == "--dtype") {
      RENGA_ASSIGN_OR_RETURN(arguments.dtype, ParseDtype(value));
    } else {
      return InvalidArgument(word, "is unknown");
    }
  }
  if (arguments.model.empty()) return InvalidArgument("MODEL.gguf", "is missing");
  return arguments;
}

double Milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// A batch of sequences on fixed pages, driven as the engine does it.
class Runner {
 public:
  Runner(Transformer& transformer, int32_t sequences) : transformer_(transformer) {
    for (int32_t i = 0; i < sequences; ++i) {
      std::vector<PageId> pages(static_cast<size_t>(kPagesEach));
      std::iota(pages.begin(), pages.end(), static_cast<PageId>(i * kPagesEach));
      pages_.push_back(std::move(pages));
    }
    last_.assign(pages_.size(), 0);
  }

  // Computes the prompts one after the other; each then has `tokens` positions.
  Status Prefill(int32_t tokens) {
    for (size_t s = 0; s < pages_.size(); ++s) {
      tokens_.clear();
      for (int32_t i = 0; i < tokens; ++i) {
        tokens_.push_back(1 + (i * 131 + static_cast<int32_t>(s) * 17) % Vocab());
      }
      rows_.assign(1, {.first_row = 0,
                       .rows = tokens,
                       .first_position = 0,
                       .pages = pages_[s],
                       .open_page = static_cast<PageId>(s)});
      RENGA_RETURN_IF_ERROR(Step({tokens - 1}));
      last_[s] = results_[0].token;
    }
    length_ = tokens;
    return OkStatus();
  }

  // One token for every sequence.
  Status Decode() {
    tokens_ = last_;
    rows_.clear();
    std::vector<int32_t> logit_rows;
    for (size_t s = 0; s < pages_.size(); ++s) {
      const int32_t row = static_cast<int32_t>(s);
      rows_.push_back({.first_row = row,
                       .rows = 1,
                       .first_position = length_,
                       .pages = pages_[s],
                       .open_page = row});
      logit_rows.push_back(row);
    }
    RENGA_RETURN_IF_ERROR(Step(logit_rows));
    for (size_t s = 0; s < pages_.size(); ++s) last_[s] = results_[s].token;
    ++length_;
    return OkStatus();
  }

  // All on the pages of the first sequence; for prompts longer than kPagesEach pages.
  void TakeAllPages() {
    pages_.resize(1);
    pages_[0].resize(static_cast<size_t>(kPages));
    std::iota(pages_[0].begin(), pages_[0].end(), 0);
    last_.resize(1);
  }

  TokenId first_token() const { return last_[0]; }

 private:
  int32_t Vocab() const { return transformer_.config().graph.vocab - 1; }

  Status Step(const std::vector<int32_t>& logit_rows) {
    RENGA_RETURN_IF_ERROR(transformer_.Forward(
        {.tokens = tokens_, .sequences = rows_, .logit_rows = logit_rows}));
    specs_.clear();
    for (size_t i = 0; i < logit_rows.size(); ++i) {
      specs_.push_back({.logit_row = static_cast<int32_t>(i)});
    }
    results_.assign(specs_.size(), {});
    return transformer_.backend().Sample(specs_, results_);
  }

  Transformer& transformer_;
  std::vector<std::vector<PageId>> pages_;  // [sequence]
  std::vector<TokenId> last_;               // [sequence]
  int32_t length_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<SequenceRows> rows_;
  std::vector<SampleSpec> specs_;
  std::vector<SampleResult> results_;
};

template <class StepFunction>
StatusOr<Timing> Measure(std::string name, int32_t tokens, int32_t repetitions,
                         TimedBackend& backend, StepFunction step) {
  const SystemClock clock;
  std::vector<double> times;
  for (int32_t i = -2; i < repetitions; ++i) {  // Two warm it up.
    if (i == 0) backend.Reset();
    const TimePoint start = clock.Now();
    RENGA_RETURN_IF_ERROR(step());
    if (i >= 0) times.push_back(Milliseconds(clock.Now() - start));
  }
  std::sort(times.begin(), times.end());
  Timing timing{.name = std::move(name),
                .tokens = tokens,
                .median_ms = times[times.size() / 2],
                .p99_ms = times[std::min(times.size() - 1, times.size() * 99 / 100)]};
  for (size_t part = 0; part < TimedBackend::kParts; ++part) {
    const Duration all = backend.time(static_cast<TimedBackend::Part>(part));
    timing.parts_ms[part] = Milliseconds(all) / repetitions;
  }
  return timing;
}

StatusOr<std::unique_ptr<Backend>> MakeBackend(const Arguments& arguments) {
  if (arguments.device == "cpu") {
    return MakeCpuBackend({.isa = arguments.isa,
                           .threads = arguments.threads,
                           .precision = arguments.precision});
  }
  const std::string cuda = "cuda:";
  if (arguments.device.rfind(cuda, 0) != 0) {
    return InvalidArgument("--device", "must be cpu or cuda:N");
  }
  const int32_t index = std::atoi(arguments.device.c_str() + cuda.size());
  RENGA_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, MakeCudaDevice(index));
  return MakeCudaBackend(std::move(device),
                         {.graphs = arguments.graphs, .threads = arguments.threads});
}

StatusOr<std::vector<Timing>> MeasureAll(Transformer& transformer, TimedBackend& backend,
                                         const Arguments& arguments) {
  const int32_t repetitions = arguments.repetitions;
  std::vector<Timing> timings;
  Runner prefill(transformer, 1);
  prefill.TakeAllPages();
  RENGA_ASSIGN_OR_RETURN(Timing timing,
                         Measure("prefill " + std::to_string(arguments.prefill),
                                 arguments.prefill, std::max(3, repetitions / 3), backend,
                                 [&] { return prefill.Prefill(arguments.prefill); }));
  timings.push_back(timing);
  TokenId alone = -1;
  for (const int32_t batch : {1, 8, 32, kMaxBatch}) {
    if (batch > arguments.max_batch) break;
    Runner decode(transformer, batch);
    RENGA_RETURN_IF_ERROR(decode.Prefill(kContextTokens));
    const int32_t steps = std::min(60, 2 * repetitions);
    RENGA_ASSIGN_OR_RETURN(Timing step,
                           Measure("decode batch " + std::to_string(batch), batch, steps,
                                   backend, [&] { return decode.Decode(); }));
    timings.push_back(step);
    if (batch == 1) alone = decode.first_token();
    if (decode.first_token() != alone) {
      return Internal("a sequence answers differently in a batch than alone");
    }
  }
  return timings;
}

// GB/s of reading, best of three.
double MeasureBandwidth(int32_t threads) {
  const size_t words = size_t{256} << 17;  // 256 MiB of 8 bytes each.
  const std::vector<uint64_t> memory(words, 1);
  std::vector<uint64_t> sums(static_cast<size_t>(threads));
  const SystemClock clock;
  double best_ms = 1e9;
  for (int round = 0; round < 3; ++round) {
    const TimePoint start = clock.Now();
    std::vector<std::thread> workers;
    for (size_t t = 0; t < sums.size(); ++t) {
      workers.emplace_back([&, t] {
        const auto begin =
            memory.begin() + static_cast<std::ptrdiff_t>(words * t / sums.size());
        const auto end =
            memory.begin() + static_cast<std::ptrdiff_t>(words * (t + 1) / sums.size());
        sums[t] = std::accumulate(begin, end, uint64_t{0});
      });
    }
    for (std::thread& worker : workers) worker.join();
    best_ms = std::min(best_ms, Milliseconds(clock.Now() - start));
  }
  if (std::accumulate(sums.begin(), sums.end(), uint64_t{0}) != words) return 0;
  return static_cast<double>(words) * 8 / best_ms / 1e6;
}

// What one token of one sequence has to read: all weights (of a token table that is not
// the head as well, one row, which is nothing) and the pages of its context.
double BytesPerToken(const GgufFile& file, const Backend& backend) {
  const bool own_head = file.FindTensor("output.weight") != nullptr;
  double bytes = static_cast<double>(backend.page_bytes()) * kContextTokens / kPageTokens;
  for (const GgufTensor& tensor : file.tensors()) {
    if (own_head && tensor.name == "token_embd.weight") continue;
    bytes += static_cast<double>(tensor.bytes);
  }
  return bytes;
}

void PrintParts(const std::vector<Timing>& timings) {
  std::printf("%-26s", "ms of a step in");
  for (const Timing& timing : timings) std::printf(" %16s", timing.name.c_str());
  for (size_t part = 0; part < TimedBackend::kParts; ++part) {
    std::printf("\n%-26s", TimedBackend::kNames[part]);
    for (const Timing& timing : timings) std::printf(" %16.3f", timing.parts_ms[part]);
  }
  std::printf("\n");
}

void Print(const Arguments& arguments, const BackendInfo& info, double bytes_per_token,
           double bandwidth, const std::vector<Timing>& timings) {
  std::printf("%s, %d threads, pages %s; memory reads at %.1f GB/s\n", info.name.c_str(),
              info.threads, std::string(KvDtypeName(arguments.dtype)).c_str(), bandwidth);
  std::printf("%-16s %10s %10s %12s\n", "step", "median ms", "p99 ms", "tokens/s");
  std::string json;
  for (const Timing& timing : timings) {
    std::printf("%-16s %10.2f %10.2f %12.1f\n", timing.name.c_str(), timing.median_ms,
                timing.p99_ms, timing.tokens_per_second());
    char entry[160];
    std::snprintf(entry, sizeof entry,
                  ",\"%s\":{\"median_ms\":%.3f,\"p99_ms\":%.3f,\"tokens_per_s\":%.1f}",
                  timing.name.c_str(), timing.median_ms, timing.p99_ms,
                  timing.tokens_per_second());
    json += entry;
  }
  if (arguments.device == "cpu") PrintParts(timings);
  std::printf("decode batch 1 reads %.1f MB a token, %.1f GB/s\n", bytes_per_token / 1e6,
              bytes_per_token / 1e9 * timings[1].tokens_per_second());
  std::printf(
      "{\"backend\":\"%s\",\"threads\":%d,\"read_gb_per_s\":%.1f,"
      "\"bytes_per_token\":%.0f%s}\n",
      info.name.c_str(), info.threads, bandwidth, bytes_per_token, json.c_str());
}

Status Run(int argc, char** argv) {
  RENGA_ASSIGN_OR_RETURN(const Arguments arguments, Parse(argc, argv));
  RENGA_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file,
                         GgufFile::Open(arguments.model));
  RENGA_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeBackend(arguments));
  TimedBackend timed(*backend);
  RENGA_ASSIGN_OR_RETURN(
      const std::unique_ptr<Transformer> transformer,
      Transformer::Load(*file, timed,
                        {.max_rows = std::max(arguments.prefill, kContextTokens),
                         .max_logit_rows = kMaxBatch,
                         .max_sequences = kMaxBatch,
                         .max_pages = kPages}));
  const GraphShape& graph = transformer->config().graph;
  RENGA_RETURN_IF_ERROR(backend->CreateKvPool({.layers = graph.layers,
                                               .kv_heads = graph.kv_heads,
                                               .head_dim = graph.head_dim,
                                               .dtype = arguments.dtype},
                                              kPages));
  file->ReleasePages();
  const double before = MeasureBandwidth(backend->info().threads);
  RENGA_ASSIGN_OR_RETURN(const std::vector<Timing> timings,
                         MeasureAll(*transformer, timed, arguments));
  const double bandwidth = std::max(before, MeasureBandwidth(backend->info().threads));
  Print(arguments, backend->info(), BytesPerToken(*file, *backend), bandwidth, timings);
  return OkStatus();
}

}  // namespace
}  // namespace renga

int main(int argc, char** argv) {
  const renga::Status status = renga::Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "step_bench: %s\n", status.ToString().c_str());
  return 1;
}
