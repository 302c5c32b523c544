// See sample_spec.h.

#include "backend/sample_spec.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/status_macros.h"

namespace renga {

namespace {

Status CheckToken(const char* field, TokenId token, int64_t vocab) {
  if (token >= 0 && token < vocab) return OkStatus();
  return InvalidArgument(field, "token " + std::to_string(token) +
                                    " is not in a vocabulary of " +
                                    std::to_string(vocab));
}

void Cap(float& logit) { logit = std::min(logit, std::numeric_limits<float>::max()); }

}  // namespace

Status CheckSampleSpec(const SampleSpec& spec, int64_t logit_rows, int64_t vocab) {
  if (spec.logit_row < 0 || spec.logit_row >= logit_rows) {
    return InvalidArgument("logit_row", std::to_string(spec.logit_row) +
                                            " is not one of this step's " +
                                            std::to_string(logit_rows) + " logit rows");
  }
  if (spec.logprobs > kMaxTopLogprobs) {
    return InvalidArgument("logprobs", std::to_string(spec.logprobs) + " is above " +
                                           std::to_string(kMaxTopLogprobs));
  }
  if (spec.given >= vocab) return CheckToken("given", spec.given, vocab);
  for (const LogitBias& bias : spec.logit_bias) {
    RENGA_RETURN_IF_ERROR(CheckToken("logit_bias", bias.token, vocab));
  }
  for (const TokenCount& count : spec.history) {
    RENGA_RETURN_IF_ERROR(CheckToken("history", count.token, vocab));
  }
  for (const TokenId token : spec.banned) {
    RENGA_RETURN_IF_ERROR(CheckToken("banned", token, vocab));
  }
  return OkStatus();
}

Status CheckSampleCall(std::span<const SampleSpec> specs,
                       std::span<const SampleResult> results, int64_t most,
                       int64_t logit_rows, int64_t vocab) {
  if (specs.size() != results.size()) {
    return InvalidArgument("results", "must have one place per spec");
  }
  if (static_cast<int64_t>(specs.size()) > most) {
    return InvalidArgument(
        "specs", std::to_string(specs.size()) +
                     " are more than the limits allow: " + std::to_string(most));
  }
  for (const SampleSpec& spec : specs) {
    RENGA_RETURN_IF_ERROR(CheckSampleSpec(spec, logit_rows, vocab));
  }
  return OkStatus();
}

bool EditsLogits(const SampleSpec& spec) {
  const bool penalties = spec.repetition_penalty != 1.0f ||
                         spec.presence_penalty != 0.0f || spec.frequency_penalty != 0.0f;
  return !spec.banned.empty() || !spec.logit_bias.empty() ||
         (penalties && !spec.history.empty());
}

void EditLogits(const SampleSpec& spec, std::span<float> logits) {
  const auto logit_of = [&](TokenId token) -> float& {
    return logits[static_cast<size_t>(token)];
  };
  for (const LogitBias& bias : spec.logit_bias) {
    logit_of(bias.token) += bias.bias;
    Cap(logit_of(bias.token));
  }
  if (spec.repetition_penalty != 1.0f) {
    for (const TokenCount& count : spec.history) {
      float& logit = logit_of(count.token);
      logit = logit > 0.0f ? logit / spec.repetition_penalty
                           : logit * spec.repetition_penalty;
      Cap(logit);
    }
  }
  if (spec.frequency_penalty != 0.0f || spec.presence_penalty != 0.0f) {
    for (const TokenCount& count : spec.history) {
      if (count.in_answer <= 0) continue;
      float& logit = logit_of(count.token);
      logit -= spec.frequency_penalty * static_cast<float>(count.in_answer);
      logit -= spec.presence_penalty;
      Cap(logit);
    }
  }
  for (const TokenId token : spec.banned) {
    logit_of(token) = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace renga
