// ModelScorer: a model on a device of its own, computing one sequence for its logits.
// It takes the engine's path: Transformer, Backend and pages, one slice after another.
//
// Thread rule: one thread at a time.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/gguf_file.h"
#include "model/transformer.h"
#include "renga/backend.h"
#include "renga/status.h"
#include "renga/tokenizer.h"

namespace renga {

class ModelScorer {
 public:
  static constexpr int32_t kSliceRows = 128;  // The most tokens of one slice.

  // Loads the model onto `backend`, with room for `window` tokens or what the model was
  // made for, if that is less.
  static StatusOr<std::unique_ptr<ModelScorer>> Open(const std::string& path,
                                                     std::unique_ptr<Backend> backend,
                                                     KvDtype dtype, int32_t window);

  const std::string& name() const { return file_->name(); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  int32_t window() const { return window_; }
  int64_t vocab_size() const { return transformer_->config().graph.vocab; }

  // Computes `tokens` at `first_position` and on; those before it were computed by
  // earlier calls (0 begins anew). Logits are kept for the rows from `first_logit_row`
  // on. REQUIRES: at most kSliceRows tokens inside the vocabulary, within the window.
  Status Compute(std::span<const TokenId> tokens, int32_t first_position,
                 int32_t first_logit_row);
  // Logits of a row of the last Compute, counted from its first_logit_row; valid until
  // the next. DATA_LOSS: they are not all finite.
  StatusOr<std::span<const float>> Logits(int32_t index);

 private:
  ModelScorer() = default;
  Status Load(KvDtype dtype, int32_t window);

  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Transformer> transformer_;
  int32_t window_ = 0;
  PageId open_page_ = -1;
  std::vector<PageId> pages_;
  std::vector<int32_t> logit_rows_;
};

}  // namespace renga
