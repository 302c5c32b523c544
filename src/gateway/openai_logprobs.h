// Log-probabilities as OpenAI's two APIs write them.
//
// Thread safety: none.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/json_writer.h"
#include "renga/v1/inference.pb.h"

namespace renga {

using TokenLogprobs = google::protobuf::RepeatedPtrField<v1::TokenLogprob>;

// One entry of chat's form: {"token", "logprob", "bytes", "top_logprobs"}. A token that
// is no whole text of its own has U+FFFD in "token"; "bytes" is exact (empty for control
// tokens).
void WriteChatLogprob(JsonWriter& json, const v1::TokenLogprob& token);
// {"content": [...], "refusal": null}
void WriteChatLogprobs(JsonWriter& json, const TokenLogprobs& tokens);
// [null, {...}, ...]: of the prompt, whose first token has none.
void WritePromptLogprobs(JsonWriter& json, const TokenLogprobs& tokens);

// The form of completions: {"tokens", "token_logprobs", "top_logprobs", "text_offset"},
// lists side by side. Offsets count characters from the beginning of the text.
//
// A token that is no text of its own is written "bytes:\xe2\x82", a control token
// "token_id:2": so the keys of top_logprobs differ. The chosen token is always in it.
class CompletionLogprobs {
 public:
  // A token without a log-probability: the first of an echoed prompt.
  void AddFirst(std::string_view bytes, int32_t token_id);
  void Add(const v1::TokenLogprob& token);
  bool empty() const { return entries_.empty(); }
  // Writes what was added since the last call.
  void WriteAdded(JsonWriter& json);

 private:
  struct Entry {
    std::string token;
    bool has_logprob = true;
    float logprob = 0.0f;
    std::vector<std::pair<std::string, float>> top;
    int64_t offset = 0;
  };

  int64_t OffsetOf(std::string_view bytes);

  std::vector<Entry> entries_;
  int64_t characters_ = 0;  // That began in all tokens so far.
};

}  // namespace renga
