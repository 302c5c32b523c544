// What a client asks for, and how an answer ends: plain data shared by every module.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "renga/types.h"

namespace renga {

// How the next token is drawn from the logits. The defaults draw from the whole
// distribution; temperature 0 takes the most likely token (ties: the smallest id).
// Order: temperature, top_k, top_p, min_p, each on what the one before has left.
struct SamplingParams {
  float temperature = 1.0f;      // [0, 100]; 0 = greedy.
  int32_t top_k = 0;             // 0 or -1 = off; else keep the k most likely tokens.
  float top_p = 1.0f;            // (0, 1]; keep the smallest set with this mass.
  float min_p = 0.0f;            // [0, 1]; drop tokens below min_p times the best one's.
  std::optional<uint64_t> seed;  // Absent: a fresh random one per request.
};

struct ChatMessage {
  std::string role;     // "system", "user", "assistant": the template decides.
  std::string content;  // Plain text: markers in it are never control tokens.
};

struct ChatInput {
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
};

// Text is encoded as plain text; token ids are taken as they are; a chat is rendered by
// the model's template.
using PromptInput = std::variant<std::string, std::vector<TokenId>, ChatInput>;

struct GenerateRequest {
  RequestId id{};
  std::string model;  // Empty, "default" or the loaded model's name.
  PromptInput prompt;
  SamplingParams sampling;
  std::optional<int64_t> max_tokens;  // Absent: to the end of the context.
  std::vector<std::string> stop;      // The answer ends before the first of these.
  std::vector<TokenId> stop_token_ids;
  bool ignore_end_token = false;  // Go on after the model's end-of-turn tokens.
  std::optional<TimePoint> deadline;
  TimePoint arrival{};

  // Not read before later issues; named here so that their place is known:
  // session_id, priority, tenant, cache_salt, n, logprobs, attention mode.
};

enum class FinishReason {
  kNone,       // The request failed: see the status.
  kStop,       // An end token, a stop token or a stop string.
  kLength,     // max_tokens, the end of the context, or a pool that one request fills.
  kCancelled,  // By the client, its deadline or a shutdown.
};

enum class StopCause {
  kNone,
  kEndToken,
  kStopToken,
  kStopString,
  kMaxTokens,
  kContext,
  kPool
};

std::string_view FinishReasonName(FinishReason reason);  // "stop", "length", ...
std::string_view StopCauseName(StopCause cause);         // "end_token", ...

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // Prompt tokens whose keys and values were reused.
  int64_t completion_tokens = 0;  // Sampled tokens, an end token included.
};

// Where the time of one request went. Zero where a stage was not reached.
struct RequestTimings {
  Duration queue{};    // Arrival to the first step that computes for it.
  Duration prefill{};  // That step to the first token.
  Duration decode{};   // First token to the last.
  Duration max_gap{};  // Longest time between two tokens.
};

}  // namespace renga
