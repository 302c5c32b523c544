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

// Added to the logit of one token.
struct LogitBias {
  TokenId token = 0;
  float bias = 0.0f;  // [-100, 100]
};

// How the next token is drawn from the logits. The defaults draw from the whole
// distribution; temperature 0 takes the most likely token (ties: the smallest id).
// Order: logit_bias; repetition, then frequency and presence penalty; temperature; then
// top_k, typical_p, top_p, min_p, each on what the one before has left.
struct SamplingParams {
  float temperature = 1.0f;  // [0, 100]; 0 = greedy.
  int32_t top_k = 0;         // 0 or -1 = off; else keep the k most likely tokens.
  float typical_p = 1.0f;    // (0, 1]; keep the most typical tokens with this mass.
  float top_p = 1.0f;        // (0, 1]; keep the smallest set with this mass.
  float min_p = 0.0f;        // [0, 1]; drop tokens below min_p times the best one's.
  // (0, 10]; 1 = off. Positive logits of tokens of prompt and answer are divided by it,
  // negative ones multiplied.
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;        // [-2, 2]; taken off each token of the answer...
  float frequency_penalty = 0.0f;       // [-2, 2]; ... and this times how often it came.
  std::vector<LogitBias> logit_bias{};  // Each token at most once.
  std::optional<uint64_t> seed;         // Absent: a fresh random one per request.
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

// Higher classes leave the wait queue first; waiting lifts a request class by class.
enum class Priority : uint8_t { kHigh, kNormal, kLow };
inline constexpr int kPriorities = 3;
std::string_view PriorityName(Priority priority);  // "high", "normal", "low"

struct GenerateRequest {
  RequestId id{};
  std::string model;  // Empty, "default" or the loaded model's name.
  PromptInput prompt;
  SamplingParams sampling;
  // Absent: to the end of the context. 0 is legal with echo or prompt_logprobs alone.
  std::optional<int64_t> max_tokens;
  std::vector<std::string> stop;  // The answer ends before the first of these.
  std::vector<TokenId> stop_token_ids;
  bool ignore_end_token = false;  // Go on after the model's end-of-turn tokens.
  // Until so many tokens are sampled no end or stop token can be drawn and no stop string
  // is looked for.
  int64_t min_tokens = 0;
  int32_t n = 1;  // Answers to the one prompt: choices 0 to n - 1.
  // Log-probabilities of the answer's tokens, with so many alternatives each; absent:
  // none. They are those of the model: before bias, penalties, temperature and filters.
  std::optional<int32_t> logprobs;
  // The same for the prompt's tokens, from the second on.
  std::optional<int32_t> prompt_logprobs;
  bool echo = false;  // StartInfo carries the prompt's ids and text.

  Priority priority = Priority::kNormal;
  std::string tenant{};      // Who shares fairly with others; "" is one as well.
  std::string cache_salt{};  // Only requests with an equal salt share keys and values.
  bool use_prefix_cache = true;  // False: neither reads cached pages nor leaves any.
  // Of the whole answer; a prediction that it can't even begin by then refuses it.
  std::optional<TimePoint> deadline;
  TimePoint arrival{};

  // Not read before later issues; named here so that their place is known:
  // session_id, attention mode.
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

// Where the keys and values of the cached prompt tokens came from.
enum class KvSource : uint8_t { kComputed, kPrefixCache };

// A token of the vocabulary and its log-probability (natural logarithm, at most 0).
struct TopLogprob {
  TokenId token = 0;
  float logprob = 0.0f;
};

// Of one token that was sampled, or of the prompt.
struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0f;
  // The most likely ones at this place, best first (ties: smaller ids first), as many as
  // were asked for. `token` need not be among them.
  std::vector<TopLogprob> top{};
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // Prompt tokens whose keys and values were reused.
  int64_t completion_tokens = 0;  // Sampled tokens of all choices, end tokens included.
};

// Where the time of one request went. Zero where a stage was not reached.
struct RequestTimings {
  Duration queue{};    // Arrival to the first step that computes for it.
  Duration prefill{};  // That step to the first token.
  Duration decode{};   // First token to the last.
  Duration max_gap{};  // Longest time between two tokens of a choice.
};

}  // namespace renga
