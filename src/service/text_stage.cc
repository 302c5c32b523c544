#include "service/text_stage.h"

#include <utility>

namespace renga {

SinkVerdict TextStage::OnToken(const TokenChunk& chunk) {
  // The engine obeys kStop before its next step; what comes nevertheless is not wanted.
  if (inner_stopped_ || !stop_text_.empty()) return SinkVerdict::kStop;
  choice_ = chunk.choice;
  const size_t before = text_.size();
  for (const TokenId token : chunk.tokens) {
    tokens_.push_back(token);
    decoder_.Append(token, text_);
  }
  text_.append(chunk.text);
  if (CutAtStop(text_.size() - before)) {
    PassOn(0, true);
    return SinkVerdict::kStop;
  }
  return PassOn(stops_.held(), false);
}

void TextStage::OnDone(const Completion& completion) {
  if (stop_text_.empty() && !inner_stopped_) {
    const size_t before = text_.size();
    decoder_.Flush(text_);
    CutAtStop(text_.size() - before);
    PassOn(0, true);
  }
  if (stop_text_.empty() || !completion.status.ok()) {
    inner_.OnDone(completion);
    return;
  }
  Completion stopped = completion;
  stopped.finish_reason = FinishReason::kStop;
  stopped.stop_cause = StopCause::kStopString;
  stopped.stop_text = stop_text_;
  inner_.OnDone(stopped);
}

bool TextStage::CutAtStop(size_t fresh) {
  const auto match = stops_.Feed(std::string_view(text_).substr(text_.size() - fresh));
  if (!match) return false;
  stop_text_ = stops_.stop(match->stop);
  text_.resize(match->begin - passed_);
  return true;
}

SinkVerdict TextStage::PassOn(size_t keep, bool final) {
  const size_t ready = text_.size() - keep;
  const bool all_text = keep == 0 && !decoder_.holds_bytes();
  const bool ids_alone = all_text || final || tokens_.size() > kMaxHeldTokens;
  // Ids without text wait for it, unless there is none to wait for.
  if (ready == 0 && (tokens_.empty() || !ids_alone)) return SinkVerdict::kContinue;
  const SinkVerdict verdict =
      inner_.OnToken({.choice = choice_,
                      .tokens = tokens_,
                      .text = std::string_view(text_).substr(0, ready)});
  inner_stopped_ = verdict == SinkVerdict::kStop;
  passed_ += ready;
  text_.erase(0, ready);
  tokens_.clear();
  return verdict;
}

}  // namespace renga
