#include "quantize/text_quality.h"

#include <algorithm>
#include <string>
#include <vector>

#include "backend/thread_pool.h"
#include "base/status_macros.h"

namespace renga {
namespace {

using Tokens = std::vector<TokenId>;

StatusOr<Tokens> Encode(const ModelScorer& model, std::string_view text) {
  return model.tokenizer().Encode({.text = std::string(text), .trusted = {}});
}

class TextMeter {
 public:
  TextMeter(ModelScorer& model, ModelScorer* reference, int threads)
      : model_(model), reference_(reference), pool_(threads) {}

  // One window: tokens at positions 0 and on.
  Status Measure(std::span<const TokenId> window, QualityTotals& totals) {
    const auto end = static_cast<int32_t>(window.size());
    for (int32_t first = 0; first < end; first += ModelScorer::kSliceRows) {
      const int32_t rows = std::min(ModelScorer::kSliceRows, end - first);
      RENGA_RETURN_IF_ERROR(MeasureSlice(window, first, rows, totals));
    }
    return OkStatus();
  }

 private:
  Status MeasureSlice(std::span<const TokenId> window, int32_t first, int32_t rows,
                      QualityTotals& totals) {
    const auto slice =
        window.subspan(static_cast<size_t>(first), static_cast<size_t>(rows));
    const int32_t first_scored = std::clamp(kQualityWarmUp - first, 0, rows);
    RENGA_RETURN_IF_ERROR(model_.Compute(slice, first, first_scored));
    if (reference_ != nullptr) {
      RENGA_RETURN_IF_ERROR(reference_->Compute(slice, first, first_scored));
    }
    // The window's last position has nothing to predict.
    const bool last =
        static_cast<size_t>(first) + static_cast<size_t>(rows) == window.size();
    const int32_t scored = rows - first_scored - (last ? 1 : 0);
    if (scored <= 0) return OkStatus();
    RENGA_RETURN_IF_ERROR(ReadLogits(scored));
    scores_.resize(static_cast<size_t>(scored));
    const auto next = window.subspan(static_cast<size_t>(first + first_scored) + 1);
    pool_.Run(scored, [&](int64_t piece, int) {
      const auto i = static_cast<size_t>(piece);
      scores_[i] = reference_ == nullptr
                       ? ScorePosition(logits_[i], next[i])
                       : ComparePosition(reference_logits_[i], logits_[i], next[i]);
    });
    for (const PositionScore& score : scores_) totals.Add(score);
    return OkStatus();
  }

  Status ReadLogits(int32_t rows) {
    logits_.clear();
    reference_logits_.clear();
    for (int32_t i = 0; i < rows; ++i) {
      RENGA_ASSIGN_OR_RETURN(const std::span<const float> row, model_.Logits(i));
      logits_.push_back(row);
      if (reference_ == nullptr) continue;
      RENGA_ASSIGN_OR_RETURN(const std::span<const float> other, reference_->Logits(i));
      reference_logits_.push_back(other);
    }
    return OkStatus();
  }

  ModelScorer& model_;
  ModelScorer* const reference_;
  ThreadPool pool_;
  std::vector<std::span<const float>> logits_;  // Of the rows that are scored.
  std::vector<std::span<const float>> reference_logits_;
  std::vector<PositionScore> scores_;
};

Status CheckReference(const ModelScorer& model, const ModelScorer& reference,
                      std::string_view text, const Tokens& tokens) {
  RENGA_ASSIGN_OR_RETURN(const Tokens others, Encode(reference, text));
  if (model.vocab_size() == reference.vocab_size() && tokens == others) return OkStatus();
  return InvalidArgument("reference", reference.name() + " and " + model.name() +
                                          " make different tokens of the text");
}

}  // namespace

StatusOr<TextQuality> MeasureText(ModelScorer& model, ModelScorer* reference,
                                  std::string_view text, int threads,
                                  const WorkProgress& progress) {
  RENGA_ASSIGN_OR_RETURN(const Tokens tokens, Encode(model, text));
  int32_t window = model.window();
  if (reference != nullptr) {
    RENGA_RETURN_IF_ERROR(CheckReference(model, *reference, text, tokens));
    window = std::min(window, reference->window());
  }
  if (window < kQualityWarmUp + 2) {
    return InvalidArgument("context_length", "is " + std::to_string(window) +
                                                 "; too short to score anything");
  }
  const bool add_bos = model.tokenizer().add_bos_token();
  const auto room = static_cast<size_t>(window - (add_bos ? 1 : 0));
  TextQuality quality{.tokens = static_cast<int64_t>(tokens.size()),
                      .window = window,
                      .compared = reference != nullptr,
                      .totals = {}};
  TextMeter meter(model, reference, threads);
  Tokens part;
  for (size_t first = 0; first < tokens.size(); first += room) {
    const size_t count = std::min(room, tokens.size() - first);
    part.clear();
    if (add_bos) part.push_back(model.tokenizer().bos_token_id());
    part.insert(part.end(), tokens.begin() + static_cast<int64_t>(first),
                tokens.begin() + static_cast<int64_t>(first + count));
    RENGA_RETURN_IF_ERROR(meter.Measure(part, quality.totals));
    if (progress && !progress(static_cast<int64_t>(first + count), quality.tokens)) {
      return Cancelled("stopped before the end");
    }
  }
  if (quality.totals.positions() == 0) {
    return InvalidArgument(
        "text", "is " + std::to_string(tokens.size()) + " tokens long; at least " +
                    std::to_string(kQualityWarmUp + 2) + " are needed");
  }
  return quality;
}

}  // namespace renga
