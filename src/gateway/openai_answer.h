// Messages of the native API -> OpenAI's JSON: whole answers and events of a stream.
//
// Beside OpenAI's fields: "timings" (queue_ms, prefill_ms, decode_ms, max_gap_ms) of an
// answer to one prompt; "stop_cause" and "stop_text" of a choice say exactly what ended
// it.
//
// Thread safety: none.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/openai_logprobs.h"
#include "gateway/openai_request.h"
#include "renga/status.h"
#include "renga/v1/inference.pb.h"

namespace renga {

// What all parts of one answer begin with.
struct AnswerHead {
  std::string id;           // "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;      // Unix seconds.
  std::string fingerprint;  // Of the server that computes; empty: null.
};

// An answer as one JSON text.
class WholeAnswer {
 public:
  WholeAnswer(const AnswerShape& shape, AnswerHead head, size_t prompts)
      : shape_(shape), head_(std::move(head)), answers_(prompts) {}

  void SetFingerprint(std::string fingerprint) {
    head_.fingerprint = std::move(fingerprint);
  }
  // The answer to one prompt. True once all are there.
  bool Add(size_t prompt, v1::GenerateUnaryResponse answer);
  std::string Body() const;

 private:
  void WriteChoice(JsonWriter& json, size_t prompt, int32_t choice) const;
  void WriteLogprobs(JsonWriter& json, const v1::GenerateUnaryResponse& answer,
                     const TokenLogprobs& tokens) const;

  const AnswerShape shape_;
  AnswerHead head_;
  std::vector<v1::GenerateUnaryResponse> answers_;
  size_t added_ = 0;
};

// An answer as server-sent events. Each method returns the text to send, which may be
// empty: text and log-probabilities go out together, with the next text.
class StreamedAnswer {
 public:
  StreamedAnswer(const AnswerShape& shape, AnswerHead head, size_t prompts);

  void SetFingerprint(std::string fingerprint) {
    head_.fingerprint = std::move(fingerprint);
  }
  std::string OnEvent(size_t prompt, v1::GenerateResponse& event);
  // After the last prompt's Finished.
  bool complete() const { return finished_ == prompts_; }
  std::string End() const;

 private:
  struct Choice {
    TokenLogprobs logprobs;  // Not sent yet.
    CompletionLogprobs completion_logprobs;
    bool finished = false;
  };

  std::string OnStarted(size_t prompt, const v1::Started& started);
  std::string OnChunk(size_t prompt, v1::Chunk& chunk);
  std::string OnChoiceFinished(size_t prompt, const v1::ChoiceFinished& finished);
  std::string OnFinished(size_t prompt, const v1::Finished& finished);
  std::string FinishChoice(size_t prompt, const v1::ChoiceFinished& finished,
                           const v1::Timings* timings);
  void WriteLogprobs(JsonWriter& json, Choice& choice) const;
  bool HasLogprobs(const Choice& choice) const;
  size_t Index(size_t prompt, int32_t choice) const;
  // The event around one choice: everything up to its "index".
  JsonWriter BeginChunk(size_t index) const;
  std::string EndChunk(JsonWriter json) const;

  const AnswerShape shape_;
  AnswerHead head_;
  const size_t prompts_;
  std::string model_;
  std::vector<Choice> choices_;
  v1::Usage usage_;  // Of the prompts that are finished.
  size_t finished_ = 0;
};

// "data: ...\n\n"
std::string SseEvent(std::string_view data);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
inline constexpr std::string_view kSseKeepAlive = ": keep-alive\n\n";

// {"object": "list", "data": [...]} and one entry of it.
std::string ModelList(const v1::GetModelResponse& model, int64_t created);
std::string ModelEntry(const v1::GetModelResponse& model, int64_t created);

}  // namespace renga
