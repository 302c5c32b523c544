// One function per group of fields. NaN fails every comparison, so each check is written
// as "refuse unless inside".

#include "service/request_check.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "renga/backend.h"
#include "text/utf8.h"

namespace renga {
namespace {

std::string Element(std::string_view field, size_t index) {
  return std::string(field) + '[' + std::to_string(index) + ']';
}

// The limits of the API are whole numbers.
std::string Plain(float limit) { return std::to_string(static_cast<int>(limit)); }

Status CheckTokenId(std::string field, TokenId id, int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return OkStatus();
  return InvalidArgument(std::move(field), "is " + std::to_string(id) +
                                               "; must be in [0, " +
                                               std::to_string(vocab_size) + ")");
}

Status CheckRange(std::string_view field, float value, float least, float most) {
  if (value >= least && value <= most) return OkStatus();
  return InvalidArgument(std::string(field),
                         "must be in [" + Plain(least) + ", " + Plain(most) + ']');
}

// As CheckRange, but 0 itself is refused.
Status CheckAboveZero(std::string_view field, float value, float most) {
  if (value > 0.0f && value <= most) return OkStatus();
  return InvalidArgument(std::string(field), "must be in (0, " + Plain(most) + ']');
}

Status CheckLogitBias(const std::vector<LogitBias>& biases, int64_t vocab_size) {
  if (biases.size() > kMaxLogitBiases) {
    return InvalidArgument("logit_bias", "has " + std::to_string(biases.size()) +
                                             " entries; at most " +
                                             std::to_string(kMaxLogitBiases));
  }
  std::vector<TokenId> tokens;
  tokens.reserve(biases.size());
  for (size_t i = 0; i < biases.size(); ++i) {
    const std::string element = Element("logit_bias", i);
    RENGA_RETURN_IF_ERROR(
        CheckTokenId(element + ".token_id", biases[i].token, vocab_size));
    RENGA_RETURN_IF_ERROR(
        CheckRange(element + ".bias", biases[i].bias, -kMaxLogitBias, kMaxLogitBias));
    tokens.push_back(biases[i].token);
  }
  std::sort(tokens.begin(), tokens.end());
  const auto twice = std::adjacent_find(tokens.begin(), tokens.end());
  if (twice == tokens.end()) return OkStatus();
  return InvalidArgument("logit_bias",
                         "has token " + std::to_string(*twice) + " more than once");
}

Status CheckSampling(const SamplingParams& sampling, int64_t vocab_size) {
  RENGA_RETURN_IF_ERROR(CheckRange("temperature", sampling.temperature, 0.0f, 100.0f));
  if (sampling.top_k < -1) {
    return InvalidArgument("top_k", "must be at least 1, or 0 or -1 for off");
  }
  RENGA_RETURN_IF_ERROR(CheckAboveZero("typical_p", sampling.typical_p, 1.0f));
  RENGA_RETURN_IF_ERROR(CheckAboveZero("top_p", sampling.top_p, 1.0f));
  RENGA_RETURN_IF_ERROR(CheckRange("min_p", sampling.min_p, 0.0f, 1.0f));
  RENGA_RETURN_IF_ERROR(
      CheckAboveZero("repetition_penalty", sampling.repetition_penalty, 10.0f));
  RENGA_RETURN_IF_ERROR(
      CheckRange("presence_penalty", sampling.presence_penalty, -2.0f, 2.0f));
  RENGA_RETURN_IF_ERROR(
      CheckRange("frequency_penalty", sampling.frequency_penalty, -2.0f, 2.0f));
  return CheckLogitBias(sampling.logit_bias, vocab_size);
}

// How long the answer may and must be.
Status CheckLengths(const GenerateRequest& request) {
  const bool prompt_alone = request.echo || request.prompt_logprobs.has_value();
  if (request.max_tokens && *request.max_tokens < (prompt_alone ? 0 : 1)) {
    return InvalidArgument(
        "max_tokens", "must be at least 1, or 0 together with echo or prompt_logprobs");
  }
  if (request.min_tokens < 0) return InvalidArgument("min_tokens", "must be at least 0");
  if (request.max_tokens && request.min_tokens > *request.max_tokens) {
    return InvalidArgument("min_tokens", "is " + std::to_string(request.min_tokens) +
                                             ", more than max_tokens (" +
                                             std::to_string(*request.max_tokens) + ')');
  }
  return OkStatus();
}

Status CheckCount(std::string_view field, int32_t count, int32_t least, int32_t most) {
  if (count >= least && count <= most) return OkStatus();
  return InvalidArgument(std::string(field), "must be in [" + std::to_string(least) +
                                                 ", " + std::to_string(most) + ']');
}

Status CheckBytes(std::string_view field, std::string_view value, size_t most) {
  if (value.size() <= most) return OkStatus();
  return InvalidArgument(std::string(field),
                         "is longer than " + std::to_string(most) + " bytes");
}

Status CheckStopStrings(const std::vector<std::string>& stop) {
  if (stop.size() > kMaxStopStrings) {
    return InvalidArgument("stop", "has " + std::to_string(stop.size()) +
                                       " entries; at most " +
                                       std::to_string(kMaxStopStrings));
  }
  for (size_t i = 0; i < stop.size(); ++i) {
    if (stop[i].empty()) return InvalidArgument(Element("stop", i), "is empty");
    RENGA_RETURN_IF_ERROR(CheckBytes(Element("stop", i), stop[i], kMaxStopBytes));
    // It could never be met in the text.
    if (FindInvalidUtf8(stop[i])) {
      return InvalidArgument(Element("stop", i), "is not UTF-8");
    }
  }
  return OkStatus();
}

Status CheckMessages(const std::vector<ChatMessage>& messages) {
  constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};
  if (messages.empty()) return InvalidArgument("messages", "is empty");
  if (messages.size() > kMaxMessages) {
    return InvalidArgument("messages", "has " + std::to_string(messages.size()) +
                                           " entries; at most " +
                                           std::to_string(kMaxMessages));
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (std::find(kRoles.begin(), kRoles.end(), messages[i].role) == kRoles.end()) {
      return InvalidArgument(Element("messages", i) + ".role",
                             "must be system, user or assistant");
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckModelName(std::string_view name, std::string_view loaded) {
  if (name.empty() || name == "default" || name == loaded) return OkStatus();
  return NotFound("no such model here; the one loaded is \"" + std::string(loaded) + '"')
      .WithField("model");
}

Status CheckTokenIds(std::string_view field, const std::vector<TokenId>& ids,
                     int64_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return CheckTokenId(Element(field, i), ids[i], vocab_size);
  }
  return OkStatus();
}

Status CheckParameters(const GenerateRequest& request, int64_t vocab_size) {
  RENGA_RETURN_IF_ERROR(CheckSampling(request.sampling, vocab_size));
  RENGA_RETURN_IF_ERROR(CheckLengths(request));
  RENGA_RETURN_IF_ERROR(CheckCount("n", request.n, 1, kMaxChoices));
  RENGA_RETURN_IF_ERROR(
      CheckCount("logprobs", request.logprobs.value_or(0), 0, kMaxTopLogprobs));
  RENGA_RETURN_IF_ERROR(CheckCount("prompt_logprobs", request.prompt_logprobs.value_or(0),
                                   0, kMaxTopLogprobs));
  RENGA_RETURN_IF_ERROR(CheckBytes("x-tenant-id", request.tenant, kMaxTenantBytes));
  RENGA_RETURN_IF_ERROR(CheckBytes("cache_salt", request.cache_salt, kMaxCacheSaltBytes));
  RENGA_RETURN_IF_ERROR(CheckStopStrings(request.stop));
  if (request.stop_token_ids.size() > kMaxStopTokens) {
    return InvalidArgument("stop_token_ids",
                           "has " + std::to_string(request.stop_token_ids.size()) +
                               " entries; at most " + std::to_string(kMaxStopTokens));
  }
  return CheckTokenIds("stop_token_ids", request.stop_token_ids, vocab_size);
}

Status CheckPrompt(const PromptInput& prompt, int64_t vocab_size) {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
    if (ids->empty()) return InvalidArgument("token_ids", "is empty");
    return CheckTokenIds("token_ids", *ids, vocab_size);
  }
  if (const auto* chat = std::get_if<ChatInput>(&prompt)) {
    return CheckMessages(chat->messages);
  }
  return OkStatus();  // A text may be empty where the model has a begin-of-text token.
}

}  // namespace renga
