// One function per group of fields. NaN fails every comparison, so each check is written
// as "refuse unless inside".

#include "service/request_check.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/status_macros.h"

namespace renga {
namespace {

std::string Element(std::string_view field, size_t index) {
  return std::string(field) + '[' + std::to_string(index) + ']';
}

Status CheckSampling(const SamplingParams& sampling) {
  if (!(sampling.temperature >= 0.0f && sampling.temperature <= 100.0f)) {
    return InvalidArgument("temperature", "must be in [0, 100]");
  }
  if (sampling.top_k < -1) {
    return InvalidArgument("top_k", "must be at least 1, or 0 or -1 for off");
  }
  if (!(sampling.top_p > 0.0f && sampling.top_p <= 1.0f)) {
    return InvalidArgument("top_p", "must be in (0, 1]");
  }
  if (!(sampling.min_p >= 0.0f && sampling.min_p <= 1.0f)) {
    return InvalidArgument("min_p", "must be in [0, 1]");
  }
  return OkStatus();
}

Status CheckStopStrings(const std::vector<std::string>& stop) {
  if (stop.size() > kMaxStopStrings) {
    return InvalidArgument("stop", "has " + std::to_string(stop.size()) +
                                       " entries; at most " +
                                       std::to_string(kMaxStopStrings));
  }
  for (size_t i = 0; i < stop.size(); ++i) {
    if (stop[i].empty()) return InvalidArgument(Element("stop", i), "is empty");
    if (stop[i].size() > kMaxStopBytes) {
      return InvalidArgument(
          Element("stop", i),
          "is longer than " + std::to_string(kMaxStopBytes) + " bytes");
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
    return InvalidArgument(Element(field, i), "is " + std::to_string(ids[i]) +
                                                  "; must be in [0, " +
                                                  std::to_string(vocab_size) + ")");
  }
  return OkStatus();
}

Status CheckParameters(const GenerateRequest& request, int64_t vocab_size) {
  RENGA_RETURN_IF_ERROR(CheckSampling(request.sampling));
  if (request.max_tokens && *request.max_tokens < 1) {
    return InvalidArgument("max_tokens", "must be at least 1");
  }
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
