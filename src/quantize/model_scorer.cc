#include "quantize/model_scorer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status_macros.h"
#include "quantize/quality.h"
#include "text/load_tokenizer.h"

namespace renga {

StatusOr<std::unique_ptr<ModelScorer>> ModelScorer::Open(const std::string& path,
                                                         std::unique_ptr<Backend> backend,
                                                         KvDtype dtype, int32_t window) {
  std::unique_ptr<ModelScorer> scorer(new ModelScorer());
  RENGA_ASSIGN_OR_RETURN(scorer->file_, GgufFile::Open(path));
  RENGA_ASSIGN_OR_RETURN(scorer->tokenizer_, LoadTokenizer(*scorer->file_));
  scorer->backend_ = std::move(backend);
  RENGA_RETURN_IF_ERROR(scorer->Load(dtype, window));
  return scorer;
}

Status ModelScorer::Load(KvDtype dtype, int32_t window) {
  RENGA_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(*file_));
  if (tokenizer_->vocab_size() != config.graph.vocab) {
    return InvalidArgument(
        "tokenizer.ggml.tokens",
        file_->name() + ": has " + std::to_string(tokenizer_->vocab_size()) +
            " entries; the model has " + std::to_string(config.graph.vocab));
  }
  window_ = static_cast<int32_t>(std::min<int64_t>(window, config.context_length));
  pages_.resize(static_cast<size_t>(PagesFor(window_)));
  std::iota(pages_.begin(), pages_.end(), 0);
  if (HasOpenPages(dtype)) open_page_ = 0;
  const auto pages = static_cast<int64_t>(pages_.size());
  RENGA_ASSIGN_OR_RETURN(transformer_, Transformer::Load(*file_, *backend_,
                                                         {.max_rows = kSliceRows,
                                                          .max_logit_rows = kSliceRows,
                                                          .max_sequences = 1,
                                                          .max_pages = pages}));
  const GraphShape& graph = config.graph;
  RENGA_RETURN_IF_ERROR(backend_->CreateKvPool({.layers = graph.layers,
                                                .kv_heads = graph.kv_heads,
                                                .head_dim = graph.head_dim,
                                                .dtype = dtype},
                                               pages));
  file_->ReleasePages();
  return OkStatus();
}

Status ModelScorer::Compute(std::span<const TokenId> tokens, int32_t first_position,
                            int32_t first_logit_row) {
  const auto rows = static_cast<int32_t>(tokens.size());
  logit_rows_.clear();
  for (int32_t row = first_logit_row; row < rows; ++row) logit_rows_.push_back(row);
  const SequenceRows sequence{.first_row = 0,
                              .rows = rows,
                              .first_position = first_position,
                              .pages = pages_,
                              .open_page = open_page_};
  return transformer_->Forward(
      {.tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = logit_rows_});
}

StatusOr<std::span<const float>> ModelScorer::Logits(int32_t index) {
  RENGA_ASSIGN_OR_RETURN(const std::span<const float> logits, backend_->Logits(index));
  if (!AllFinite(logits)) {
    return DataLoss(file_->name() + ": a logit is a NaN or an infinity");
  }
  return logits;
}

}  // namespace renga
