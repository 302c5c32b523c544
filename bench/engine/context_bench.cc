// Decode with a long context on f16 pages against int8 pages: batch 1 and 8, 4,096 and
// 8,064 positions before the first decoded token. The two take turns within one run, and
// the time of attention is shown apart from that of the whole step.
//
//   context_bench MODEL.gguf [--isa auto] [--threads 0] [--rounds 5]
//
// Keys and values are those of a prompt of 512 tokens, repeated: they cost what others
// do. Prints the median over the rounds of the mean of 16 steps.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu_backend.h"
#include "base/status_macros.h"
#include "bench/engine/timed_backend.h"
#include "formats/gguf_file.h"
#include "model/transformer.h"

namespace renga {
namespace {

constexpr int32_t kPrompt = 512;
constexpr int32_t kMostContext = 8064;
constexpr int32_t kSteps = 16;  // Of a round.
constexpr int32_t kMaxBatch = 8;
constexpr int64_t kPagesEach = kMostContext / kPageTokens + 1;
constexpr int64_t kPages = kMaxBatch * kPagesEach;

struct Arguments {
  std::string model;
  CpuBackendOptions backend;
  int32_t rounds = 5;
};

struct Times {
  std::vector<double> attend_ms;  // Per step; [rounds]
  std::vector<double> step_ms;
};

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
    if (word == "--isa") {
      arguments.backend.isa = value;
    } else if (word == "--threads") {
      arguments.backend.threads = std::atoi(value.c_str());
    } else if (word == "--rounds") {
      arguments.rounds = std::max(1, std::atoi(value.c_str()));
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

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The model on pages of one dtype, all filled.
class Subject {
 public:
  static StatusOr<std::unique_ptr<Subject>> Make(const GgufFile& file,
                                                 const CpuBackendOptions& options,
                                                 KvDtype dtype) {
    RENGA_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeCpuBackend(options));
    auto subject = std::make_unique<Subject>(std::move(backend));
    RENGA_ASSIGN_OR_RETURN(subject->transformer_,
                           Transformer::Load(file, subject->timed_,
                                             {.max_rows = kPrompt,
                                              .max_logit_rows = kMaxBatch,
                                              .max_sequences = kMaxBatch,
                                              .max_pages = kPages}));
    const GraphShape& graph = subject->transformer_->config().graph;
    if (graph.context < kMostContext + kSteps) {
      return InvalidArgument("MODEL.gguf", "the model's context is too short");
    }
    RENGA_RETURN_IF_ERROR(subject->timed_.CreateKvPool({.layers = graph.layers,
                                                        .kv_heads = graph.kv_heads,
                                                        .head_dim = graph.head_dim,
                                                        .dtype = dtype},
                                                       kPages));
    RENGA_RETURN_IF_ERROR(subject->Fill());
    return subject;
  }

  explicit Subject(std::unique_ptr<Backend> backend)
      : backend_(std::move(backend)), timed_(*backend_), pages_(kMaxBatch) {
    PageId next = 0;
    for (std::vector<PageId>& pages : pages_) {
      for (int64_t i = 0; i < kPagesEach; ++i) pages.push_back(next++);
    }
  }

  // One round of decode steps.
  Status Decode(int32_t batch, int32_t context, Times& times) {
    timed_.Reset();
    const SystemClock clock;
    const TimePoint start = clock.Now();
    for (int32_t step = 0; step < kSteps; ++step) {
      tokens_.clear();
      rows_.clear();
      logit_rows_.clear();
      for (int32_t s = 0; s < batch; ++s) {
        tokens_.push_back(100 + 7 * s + step);
        rows_.push_back({.first_row = s,
                         .rows = 1,
                         .first_position = context + step,
                         .pages = pages_[static_cast<size_t>(s)],
                         .open_page = s});
        logit_rows_.push_back(s);
      }
      RENGA_RETURN_IF_ERROR(transformer_->Forward(
          {.tokens = tokens_, .sequences = rows_, .logit_rows = logit_rows_}));
    }
    times.step_ms.push_back(Milliseconds(clock.Now() - start) / kSteps);
    times.attend_ms.push_back(Milliseconds(timed_.time(TimedBackend::kAttend)) / kSteps);
    return OkStatus();
  }

  std::string name() const { return backend_->info().name; }
  int32_t threads() const { return backend_->info().threads; }
  int64_t page_bytes() const { return backend_->page_bytes(); }

 private:
  // Computes a prompt, and copies its pages over all others.
  Status Fill() {
    for (int32_t i = 0; i < kPrompt; ++i) tokens_.push_back(1 + i * 131 % 10'000);
    rows_ = {{.first_row = 0, .rows = kPrompt, .pages = pages_[0], .open_page = 0}};
    RENGA_RETURN_IF_ERROR(
        transformer_->Forward({.tokens = tokens_, .sequences = rows_, .logit_rows = {}}));
    std::vector<std::byte> bytes(static_cast<size_t>(backend_->page_bytes()));
    for (PageId page = 0; page < kPrompt / kPageTokens; ++page) {
      RENGA_RETURN_IF_ERROR(backend_->ReadPage(page, bytes));
      for (PageId to = page; to < kPages; to += kPrompt / kPageTokens) {
        RENGA_RETURN_IF_ERROR(backend_->WritePage(to, bytes));
      }
    }
    return OkStatus();
  }

  const std::unique_ptr<Backend> backend_;
  TimedBackend timed_;
  std::unique_ptr<Transformer> transformer_;
  std::vector<std::vector<PageId>> pages_;  // [sequence]
  std::vector<TokenId> tokens_;
  std::vector<SequenceRows> rows_;
  std::vector<int32_t> logit_rows_;
};

Status Run(int argc, char** argv) {
  RENGA_ASSIGN_OR_RETURN(const Arguments arguments, Parse(argc, argv));
  RENGA_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file,
                         GgufFile::Open(arguments.model));
  RENGA_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> f16,
                         Subject::Make(*file, arguments.backend, KvDtype::kF16));
  RENGA_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> int8,
                         Subject::Make(*file, arguments.backend, KvDtype::kInt8));
  std::printf("%s, %d threads; a page: f16 %.2f MB, int8 %.2f MB\n", f16->name().c_str(),
              f16->threads(), static_cast<double>(f16->page_bytes()) / 1e6,
              static_cast<double>(int8->page_bytes()) / 1e6);
  std::printf("%-6s %-8s %24s %8s %24s\n", "batch", "context", "attention f16, int8 ms",
              "ratio", "step f16, int8 ms");
  for (const int32_t batch : {1, kMaxBatch}) {
    for (const int32_t context : {4096, kMostContext}) {
      Times slow;
      Times fast;
      for (int32_t round = 0; round < arguments.rounds; ++round) {
        RENGA_RETURN_IF_ERROR(f16->Decode(batch, context, slow));
        RENGA_RETURN_IF_ERROR(int8->Decode(batch, context, fast));
      }
      const double before = Median(slow.attend_ms);
      const double after = Median(fast.attend_ms);
      std::printf("%-6d %-8d %12.2f %11.2f %8.2f %12.2f %11.2f\n", batch, context, before,
                  after, before / after, Median(slow.step_ms), Median(fast.step_ms));
    }
  }
  return OkStatus();
}

}  // namespace
}  // namespace renga

int main(int argc, char** argv) {
  const renga::Status status = renga::Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "context_bench: %s\n", status.ToString().c_str());
  return 1;
}
