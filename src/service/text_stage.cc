#include "service/text_stage.h"

#include <span>
#include <utility>

#include "base/check.h"

namespace renga {
namespace {

// What most answers hold at once fits, so that their steps allocate nothing.
constexpr size_t kUsualTokens = 8;
constexpr size_t kUsualBytes = 256;

}  // namespace

TextStage::TextStage(const Tokenizer& tokenizer, TextStageOptions options,
                     TokenSink& inner)
    : inner_(inner),
      prompt_text_(std::move(options.prompt_text)),
      min_tokens_(options.min_tokens) {
  const StopMatcher stops(std::move(options.stop));
  choices_.reserve(static_cast<size_t>(options.n));
  for (int32_t i = 0; i < options.n; ++i) {
    Choice& choice = choices_.emplace_back(tokenizer, stops);
    choice.tokens.reserve(kUsualTokens);
    choice.text.reserve(kUsualBytes);
  }
}

TextStage::TextStage(const Tokenizer& tokenizer, TextStageOptions options,
                     std::unique_ptr<TokenSink> inner)
    : TextStage(tokenizer, std::move(options), *inner) {
  owned_inner_ = std::move(inner);
}

void TextStage::OnStart(const StartInfo& info) {
  StartInfo with_text = info;
  with_text.prompt_text = prompt_text_;
  inner_.OnStart(with_text);
  prompt_text_ = std::string();
}

SinkVerdict TextStage::OnToken(const TokenChunk& chunk) {
  Choice& choice = At(chunk.choice);
  // The engine obeys kStop before its next step; what comes nevertheless is not wanted.
  if (choice.closed) return SinkVerdict::kStop;
  RENGA_CHECK(chunk.logprobs.empty() || chunk.logprobs.size() == chunk.tokens.size());
  for (size_t i = 0; i < chunk.tokens.size(); ++i) {
    Hold(choice, chunk.tokens[i], chunk.logprobs.empty() ? nullptr : &chunk.logprobs[i]);
    const size_t before = choice.text.size();
    choice.decoder.Append(chunk.tokens[i], choice.text);
    if (!CutAtStop(choice, choice.text.size() - before)) continue;
    PassOn(choice, 0, true);
    return SinkVerdict::kStop;
  }
  return PassOn(choice, choice.stops.held(), false);
}

void TextStage::OnChoiceEnd(const ChoiceEnd& end) {
  Choice& choice = At(end.choice);
  Close(choice);
  if (choice.stop_text.empty()) return inner_.OnChoiceEnd(end);
  ChoiceEnd stopped = end;
  stopped.finish_reason = FinishReason::kStop;
  stopped.stop_cause = StopCause::kStopString;
  stopped.stop_text = choice.stop_text;
  inner_.OnChoiceEnd(stopped);
}

void TextStage::OnDone(const Completion& completion) {
  for (Choice& choice : choices_) Close(choice);
  const std::string& stop_text = choices_.front().stop_text;
  if (stop_text.empty() || !completion.status.ok()) return inner_.OnDone(completion);
  Completion stopped = completion;
  stopped.finish_reason = FinishReason::kStop;
  stopped.stop_cause = StopCause::kStopString;
  stopped.stop_text = stop_text;
  inner_.OnDone(stopped);
}

TextStage::Choice& TextStage::At(int32_t choice) {
  RENGA_CHECK(choice >= 0 && static_cast<size_t>(choice) < choices_.size());
  return choices_[static_cast<size_t>(choice)];
}

void TextStage::Hold(Choice& choice, TokenId token, const TokenLogprob* logprob) {
  ++choice.sampled;
  choice.tokens.push_back(token);
  choice.has_logprobs = logprob != nullptr;
  if (logprob == nullptr) return;
  // Assigned, not appended: an old entry's list is used again.
  if (choice.logprobs.size() < choice.tokens.size()) choice.logprobs.emplace_back();
  choice.logprobs[choice.tokens.size() - 1] = *logprob;
}

bool TextStage::CutAtStop(Choice& choice, size_t fresh) {
  std::string& text = choice.text;
  const auto match =
      choice.stops.Feed(std::string_view(text).substr(text.size() - fresh));
  if (!match || choice.sampled <= min_tokens_) return false;
  choice.stop_text = choice.stops.stop(match->stop);
  text.resize(match->begin - choice.passed);
  return true;
}

SinkVerdict TextStage::PassOn(Choice& choice, size_t keep, bool last) {
  const size_t ready = choice.text.size() - keep;
  const bool all_text = keep == 0 && !choice.decoder.holds_bytes();
  const bool ids_alone = all_text || last || choice.tokens.size() > kMaxHeldTokens;
  choice.closed = choice.closed || last;
  // Ids without text wait for it, unless there is none to wait for.
  if (ready == 0 && (choice.tokens.empty() || !ids_alone)) return SinkVerdict::kContinue;
  const std::span<const TokenLogprob> logprobs = choice.logprobs;
  const SinkVerdict verdict = inner_.OnToken(
      {.choice = static_cast<int32_t>(&choice - choices_.data()),
       .tokens = choice.tokens,
       .text = std::string_view(choice.text).substr(0, ready),
       .logprobs = logprobs.first(choice.has_logprobs ? choice.tokens.size() : 0)});
  choice.closed = choice.closed || verdict == SinkVerdict::kStop;
  choice.passed += ready;
  choice.text.erase(0, ready);
  choice.tokens.clear();
  return verdict;
}

void TextStage::Close(Choice& choice) {
  if (choice.closed) return;
  const size_t before = choice.text.size();
  choice.decoder.Flush(choice.text);
  CutAtStop(choice, choice.text.size() - before);
  PassOn(choice, 0, true);
}

}  // namespace renga
