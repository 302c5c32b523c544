// TokenSink: the one call that goes up the stack.
//
// The engine gives each request's tokens to its sink; the text stage of `service` is a
// sink that turns them into text and passes them on to the transport's sink.
//
// Thread rule: all calls for one request come one after another, OnStart first (at most
// once), then OnToken and OnChoiceEnd, and OnDone exactly once as the last call, whatever
// happens: also when the request is refused (then from the thread that called Generate).
// After OnStart they come from the engine thread. No call may block.

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "renga/request.h"
#include "renga/status.h"

namespace renga {

struct StartInfo {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  KvSource kv_source = KvSource::kComputed;
  Duration queue{};
  Duration prefill{};
  // Valid during the call only; empty unless asked for.
  std::span<const TokenId> prompt{};                // GenerateRequest::echo
  std::string_view prompt_text{};                   // The same; set by the text stage.
  std::span<const TokenLogprob> prompt_logprobs{};  // [prompt_tokens - 1]
};

// What became known in one step: one sampled token from the engine. After the text stage
// it may be several tokens (those of one character) or text alone (what was held back).
struct TokenChunk {
  int32_t choice = 0;               // Which of the n answers.
  std::span<const TokenId> tokens;  // Valid during the call only.
  std::string_view text;            // Whole UTF-8 characters; empty from the engine.
  std::span<const TokenLogprob> logprobs{};  // [tokens], or empty: not asked for.
};

enum class SinkVerdict {
  kContinue,
  kStop,   // End this choice now, with FinishReason::kStop.
  kPause,  // Compute nothing more for the request until GenerationService::Resume.
};

// One of the n answers has ended by itself; after its last OnToken. Not called for those
// that a failure or a cancel ends.
struct ChoiceEnd {
  int32_t choice = 0;
  FinishReason finish_reason = FinishReason::kNone;
  StopCause stop_cause = StopCause::kNone;
  std::string stop_text{};        // The stop string that ended it, if one did.
  int64_t completion_tokens = 0;  // Of this choice.
};

struct Completion {
  Status status;  // Not OK: the request failed, and the rest says how far it came.
  // Of choice 0; of all choices where it was a cancel.
  FinishReason finish_reason = FinishReason::kNone;
  StopCause stop_cause = StopCause::kNone;
  std::string stop_text{};
  Usage usage;
  RequestTimings timings;
};

class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // The prompt is computed; called directly before the first OnToken.
  virtual void OnStart(const StartInfo& /*info*/) {}
  // The engine obeys the verdict before its next step.
  virtual SinkVerdict OnToken(const TokenChunk& chunk) = 0;
  virtual void OnChoiceEnd(const ChoiceEnd& /*end*/) {}
  virtual void OnDone(const Completion& completion) = 0;
};

}  // namespace renga
