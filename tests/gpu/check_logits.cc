// `renga_gpu_check logits` and `memory`: a whole model on a device.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda_backend.h"
#include "base/memory_ledger.h"
#include "base/status_macros.h"
#include "formats/gguf_file.h"
#include "model/transformer.h"
#include "tests/gpu/gpu_check.h"

namespace renga::test {
namespace {

constexpr int32_t kMemoryTokens = 8192;  // Of the pool that `memory` makes.

StatusOr<std::vector<TokenId>> ReadTokens(const std::string& path) {
  FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return InvalidArgument("--tokens", "cannot be read");
  std::vector<TokenId> tokens;
  int32_t token = 0;
  while (std::fread(&token, sizeof token, 1, file) == 1) tokens.push_back(token);
  std::fclose(file);
  if (tokens.empty()) return InvalidArgument("--tokens", "holds no token");
  return tokens;
}

StatusOr<KvDtype> ParseKv(const std::string& name) {
  for (const KvDtype dtype :
       {KvDtype::kF16, KvDtype::kBf16, KvDtype::kF32, KvDtype::kInt8}) {
    if (name == KvDtypeName(dtype)) return dtype;
  }
  return InvalidArgument("--kv", "'" + name + "' is none of f16, bf16, f32, int8");
}

// One sequence on a model, all of whose logits are wanted.
class Subject {
 public:
  static StatusOr<std::unique_ptr<Subject>> Make(const GpuCheckOptions& options,
                                                 std::unique_ptr<Backend> backend,
                                                 int32_t tokens) {
    auto subject = std::unique_ptr<Subject>(new Subject());
    subject->backend_ = std::move(backend);
    RENGA_ASSIGN_OR_RETURN(const KvDtype dtype, ParseKv(options.kv));
    RENGA_ASSIGN_OR_RETURN(subject->file_, GgufFile::Open(options.model));
    const int32_t rows = std::min(options.prefill, tokens);
    RENGA_ASSIGN_OR_RETURN(subject->transformer_,
                           Transformer::Load(*subject->file_, *subject->backend_,
                                             {.max_rows = rows,
                                              .max_logit_rows = rows,
                                              .max_sequences = 1,
                                              .max_pages = PagesFor(tokens)}));
    const GraphShape& graph = subject->transformer_->config().graph;
    RENGA_RETURN_IF_ERROR(subject->backend_->CreateKvPool({.layers = graph.layers,
                                                           .kv_heads = graph.kv_heads,
                                                           .head_dim = graph.head_dim,
                                                           .dtype = dtype},
                                                          PagesFor(tokens)));
    for (PageId page = 0; page < PagesFor(tokens); ++page)
      subject->pages_.push_back(page);
    return subject;
  }

  // Computes the tokens of the next positions and hands on the logits of each.
  template <class Take>
  Status Step(std::span<const TokenId> tokens, Take take) {
    const auto rows = static_cast<int32_t>(tokens.size());
    const SequenceRows sequence{
        .rows = rows, .first_position = position_, .pages = pages_, .open_page = 0};
    std::vector<int32_t> logit_rows(tokens.size());
    for (int32_t i = 0; i < rows; ++i) logit_rows[static_cast<size_t>(i)] = i;
    RENGA_RETURN_IF_ERROR(transformer_->Forward(
        {.tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = logit_rows}));
    position_ += rows;
    for (const int32_t row : logit_rows) {
      RENGA_ASSIGN_OR_RETURN(const std::span<const float> logits, backend_->Logits(row));
      RENGA_RETURN_IF_ERROR(take(logits));
    }
    return OkStatus();
  }

  const GraphShape& graph() const { return transformer_->config().graph; }
  const Backend& backend() const { return *backend_; }

 private:
  Subject() = default;

  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Transformer> transformer_;
  std::vector<PageId> pages_;
  int32_t position_ = 0;
};

Status CheckTokens(const std::vector<TokenId>& tokens, const GraphShape& graph) {
  for (const TokenId token : tokens) {
    if (token < 0 || token >= graph.vocab) {
      return InvalidArgument("--tokens", std::to_string(token) +
                                             " is not in the vocabulary of " +
                                             std::to_string(graph.vocab));
    }
  }
  return OkStatus();
}

}  // namespace

Status WriteLogits(const GpuCheckOptions& options) {
  RENGA_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, ReadTokens(options.tokens));
  const auto count = static_cast<int32_t>(tokens.size());
  RENGA_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeCheckBackend(options));
  RENGA_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> subject,
                         Subject::Make(options, std::move(backend), count));
  RENGA_RETURN_IF_ERROR(CheckTokens(tokens, subject->graph()));
  FILE* out = std::fopen(options.out.c_str(), "wb");
  if (out == nullptr) return InvalidArgument("--out", "cannot be written");
  const std::unique_ptr<FILE, int (*)(FILE*)> closer(out, std::fclose);
  const auto write = [&](std::span<const float> logits) {
    const bool whole =
        std::fwrite(logits.data(), sizeof(float), logits.size(), out) == logits.size();
    return whole ? OkStatus() : Internal("--out cannot be written: is the disk full?");
  };
  const std::span<const TokenId> all(tokens);
  const int32_t first = std::min(options.prefill, count);
  RENGA_RETURN_IF_ERROR(subject->Step(all.first(static_cast<size_t>(first)), write));
  for (int32_t i = first; i < count; ++i) {
    RENGA_RETURN_IF_ERROR(subject->Step(all.subspan(static_cast<size_t>(i), 1), write));
  }
  std::printf("%d tokens, vocabulary %d, %s\n", count, subject->graph().vocab,
              subject->backend().info().numerics_id.c_str());
  return OkStatus();
}

Status ReportMemory(const GpuCheckOptions& options) {
  RENGA_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, MakeCheckDevice(options.device));
  Device& watched = *device;  // Lives as long as the backend that owns it.
  RENGA_ASSIGN_OR_RETURN(const int64_t at_start, watched.FreeBytes());
  RENGA_ASSIGN_OR_RETURN(
      std::unique_ptr<Backend> backend,
      MakeCudaBackend(std::move(device), {.row_invariant = options.row_invariant,
                                          .graphs = options.graphs}));
  GpuCheckOptions decode = options;
  decode.prefill = 1;
  RENGA_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> subject,
                         Subject::Make(decode, std::move(backend), kMemoryTokens));
  RENGA_ASSIGN_OR_RETURN(const int64_t loaded, watched.FreeBytes());
  for (TokenId token = 1; token <= 4; ++token) {  // The first one captures its graph.
    RENGA_RETURN_IF_ERROR(subject->Step({&token, 1}, [](auto) { return OkStatus(); }));
  }
  RENGA_ASSIGN_OR_RETURN(const int64_t serving, watched.FreeBytes());
  RENGA_ASSIGN_OR_RETURN(ResultFile out, ResultFile::Open(options.out));
  const auto field = [](std::string_view name, int64_t value) {
    return '"' + std::string(name) + "\":" + std::to_string(value);
  };
  std::string line =
      '{' + field("total", watched.info().total_bytes) + ',' +
      field("used_at_start", watched.info().total_bytes - at_start) + ',' +
      field("loading", at_start - loaded) + ',' + field("first_steps", loaded - serving) +
      ',' + field("kv_bytes_per_token", subject->backend().page_bytes() / kPageTokens);
  for (size_t i = 0; i < kMemoryPurposes; ++i) {
    const auto purpose = static_cast<MemoryPurpose>(i);
    line += ',' + field(MemoryPurposeName(purpose),
                        MemoryLedger::Process().Read(purpose).bytes);
  }
  out.Line(line + '}');
  return OkStatus();
}

}  // namespace renga::test
