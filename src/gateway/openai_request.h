// OpenAI's JSON requests -> messages of the native API.
//
// Shapes and types are checked here; ranges, and what depends on the model, are the
// server's. Each refusal names the field as the client spells it.
//
// Thread safety: pure functions.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "renga/status.h"
#include "renga/v1/inference.pb.h"

namespace renga {

// Of one request to /v1/completions.
inline constexpr size_t kMaxPrompts = 64;
// Of one prompt, as the native API has it: room is made for each.
inline constexpr int32_t kMaxChoices = 16;
// Likewise; a list of a million would cost more to pass on than to refuse here.
inline constexpr size_t kMaxStops = 64;
inline constexpr size_t kMaxMessages = 4096;

// What a request asks for besides its generations.
struct AnswerShape {
  bool chat = false;
  bool stream = false;
  bool include_usage = false;    // Of a stream: one last chunk with the usage.
  bool echo = false;             // The text begins with the prompt's.
  bool logprobs = false;         // Of the answer's tokens.
  bool prompt_logprobs = false;  // As a field of its own, not only within echo's.
  bool newer_limit = false;      // The limit came as max_completion_tokens.
  int32_t n = 1;                 // Choices of each prompt.
};

struct CompletionRequest {
  AnswerShape shape;
  // One for each prompt; choice c of prompt p is choice p * n + c of the answer.
  std::vector<v1::GenerateRequest> prompts;
};

// The body of POST /v1/chat/completions.
StatusOr<CompletionRequest> ParseChatRequest(std::string_view body, bool lenient);
// The body of POST /v1/completions.
StatusOr<CompletionRequest> ParseCompletionRequest(std::string_view body, bool lenient);

struct TokenizeBody {
  std::string model;
  v1::TokenizeRequest request;
};
// The body of POST /tokenize: "prompt", or "messages" as in a chat.
StatusOr<TokenizeBody> ParseTokenizeRequest(std::string_view body, bool lenient);

struct DetokenizeBody {
  std::string model;
  v1::DetokenizeRequest request;
};
// The body of POST /detokenize: "tokens".
StatusOr<DetokenizeBody> ParseDetokenizeRequest(std::string_view body, bool lenient);

// A field of the native API as the OpenAI API calls it: "ignore_end_token" ->
// "ignore_eos", "token_ids[3]" -> "prompt[3]".
std::string OpenAiFieldName(std::string_view native);

// What OpenAiFieldName gave, as the client of this very request spelled it: the server
// was asked for prompt number `prompt` of `prompts` alone.
std::string ClientFieldName(std::string field, const AnswerShape& shape, size_t prompt,
                            size_t prompts);

}  // namespace renga
