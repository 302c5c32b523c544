#include "gateway/openai_logprobs.h"

#include <algorithm>
#include <cmath>

namespace renga {
namespace {

// JSON has no infinity; this is what OpenAI writes for "never".
constexpr float kNever = -9999.0f;

float Finite(float logprob) { return std::isfinite(logprob) ? logprob : kNever; }

void WriteTokenFields(JsonWriter& json, const std::string& bytes, float logprob) {
  json.Field("token", bytes).Key("logprob").Float(Finite(logprob));
  json.Key("bytes").BeginArray();
  for (const char c : bytes) json.Int(static_cast<uint8_t>(c));
  json.EndArray();
}

// The name of a token, different for different tokens.
std::string NameOf(std::string_view bytes, int32_t token_id) {
  if (bytes.empty()) return "token_id:" + std::to_string(token_id);
  if (IsUtf8(bytes)) return std::string(bytes);
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string name = "bytes:";
  for (const char c : bytes) {
    name += "\\x";
    name += kHex[static_cast<uint8_t>(c) >> 4];
    name += kHex[static_cast<uint8_t>(c) & 15];
  }
  return name;
}

bool BeginsCharacter(char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }

}  // namespace

void WriteChatLogprob(JsonWriter& json, const v1::TokenLogprob& token) {
  json.BeginObject();
  WriteTokenFields(json, token.token(), token.logprob());
  json.Key("top_logprobs").BeginArray();
  for (const v1::TopLogprob& top : token.top()) {
    json.BeginObject();
    WriteTokenFields(json, top.token(), top.logprob());
    json.EndObject();
  }
  json.EndArray().EndObject();
}

void WriteChatLogprobs(JsonWriter& json, const TokenLogprobs& tokens) {
  json.BeginObject().Key("content").BeginArray();
  for (const v1::TokenLogprob& token : tokens) WriteChatLogprob(json, token);
  json.EndArray().NullField("refusal").EndObject();
}

void WritePromptLogprobs(JsonWriter& json, const TokenLogprobs& tokens) {
  json.BeginArray().Null();
  for (const v1::TokenLogprob& token : tokens) WriteChatLogprob(json, token);
  json.EndArray();
}

// The character that the token's first byte belongs to.
int64_t CompletionLogprobs::OffsetOf(std::string_view bytes) {
  const bool goes_on = !bytes.empty() && !BeginsCharacter(bytes[0]) && characters_ > 0;
  const int64_t offset = goes_on ? characters_ - 1 : characters_;
  characters_ += std::count_if(bytes.begin(), bytes.end(), BeginsCharacter);
  return offset;
}

void CompletionLogprobs::AddFirst(std::string_view bytes, int32_t token_id) {
  entries_.push_back({.token = NameOf(bytes, token_id),
                      .has_logprob = false,
                      .top = {},
                      .offset = OffsetOf(bytes)});
}

void CompletionLogprobs::Add(const v1::TokenLogprob& token) {
  Entry entry{.token = NameOf(token.token(), token.token_id()),
              .logprob = Finite(token.logprob()),
              .top = {},
              .offset = OffsetOf(token.token())};
  bool has_chosen = false;
  for (const v1::TopLogprob& top : token.top()) {
    has_chosen = has_chosen || top.token_id() == token.token_id();
    entry.top.emplace_back(NameOf(top.token(), top.token_id()), Finite(top.logprob()));
  }
  if (!has_chosen) entry.top.emplace_back(entry.token, entry.logprob);
  entries_.push_back(std::move(entry));
}

void CompletionLogprobs::WriteAdded(JsonWriter& json) {
  json.BeginObject().Key("tokens").BeginArray();
  for (const Entry& entry : entries_) json.String(entry.token);
  json.EndArray().Key("token_logprobs").BeginArray();
  for (const Entry& entry : entries_) {
    entry.has_logprob ? json.Float(entry.logprob) : json.Null();
  }
  json.EndArray().Key("top_logprobs").BeginArray();
  for (const Entry& entry : entries_) {
    if (!entry.has_logprob) {
      json.Null();
      continue;
    }
    json.BeginObject();
    for (const auto& [name, logprob] : entry.top) json.Key(name).Float(logprob);
    json.EndObject();
  }
  json.EndArray().Key("text_offset").BeginArray();
  for (const Entry& entry : entries_) json.Int(entry.offset);
  json.EndArray().EndObject();
  entries_.clear();
}

}  // namespace renga
