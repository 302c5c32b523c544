#include "text/load_tokenizer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "text/bpe_tokenizer.h"

namespace renga {
namespace {

// The values of tokenizer.ggml.token_type.
enum class GgufTokenType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Texts of control tokens that end an answer in the models of this family, beside the
// ids that the file names.
constexpr std::string_view kEndTexts[] = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>",
                                          "<|eom_id|>", "<|end_of_text|>"};

// A missing key is refused as well; both errors carry the key.
Status NamingKey(Status status, const std::string& key) {
  if (status.code() == StatusCode::kNotFound) return InvalidArgument(key, "is missing");
  return status.field().empty() ? std::move(status).WithField(key) : status;
}

// An optional token id; -1 if the key is missing.
StatusOr<TokenId> ReadId(const GgufFile& file, const std::string& key,
                         size_t vocab_size) {
  if (!file.Has(key)) return TokenId{-1};
  const StatusOr<uint64_t> id = file.GetUint(key);
  if (!id.ok()) return NamingKey(id.status(), key);
  if (*id >= vocab_size) {
    return InvalidArgument(key, std::to_string(*id) + " is outside the vocabulary of " +
                                    std::to_string(vocab_size) + " tokens");
  }
  return static_cast<TokenId>(*id);
}

StatusOr<std::vector<std::string>> ReadStrings(const GgufFile& file,
                                               const std::string& key) {
  const StatusOr<std::vector<std::string_view>> strings = file.GetStrings(key);
  if (!strings.ok()) return NamingKey(strings.status(), key);
  return std::vector<std::string>(strings->begin(), strings->end());
}

Status CheckModel(const GgufFile& file) {
  const std::string key = "tokenizer.ggml.model";
  const StatusOr<std::string_view> model = file.GetString(key);
  if (!model.ok()) return NamingKey(model.status(), key);
  if (*model == "gpt2") return OkStatus();
  return InvalidArgument(key, "the tokenizer model \"" + std::string(*model) +
                                  "\" is not supported (only \"gpt2\" is)");
}

Status ReadSplit(const GgufFile& file, BpeVocabulary& vocabulary) {
  const std::string key = "tokenizer.ggml.pre";
  const StatusOr<std::string_view> name = file.GetString(key);
  if (!name.ok()) return NamingKey(name.status(), key);
  const std::optional<SplitKind> split = SplitKindFromGgufName(*name);
  if (!split) {
    return InvalidArgument(key, "the split \"" + std::string(*name) +
                                    "\" is not supported (gpt-2, smollm, llama-bpe and "
                                    "qwen2 are)");
  }
  vocabulary.split = *split;
  vocabulary.nfc = *split == SplitKind::kQwen2;
  vocabulary.ignore_merges = *split == SplitKind::kLlama3;
  return OkStatus();
}

Status ReadTypes(const GgufFile& file, BpeVocabulary& vocabulary) {
  const std::string key = "tokenizer.ggml.token_type";
  const StatusOr<std::vector<int64_t>> types = file.GetInts(key);
  if (!types.ok()) return NamingKey(types.status(), key);
  if (types->size() != vocabulary.tokens.size()) {
    return InvalidArgument(key, "has " + std::to_string(types->size()) + " values for " +
                                    std::to_string(vocabulary.tokens.size()) + " tokens");
  }
  for (size_t i = 0; i < types->size(); ++i) {
    const int64_t type = (*types)[i];
    if (type < static_cast<int64_t>(GgufTokenType::kNormal) ||
        type > static_cast<int64_t>(GgufTokenType::kByte)) {
      return InvalidArgument(key, "value " + std::to_string(i) + " is " +
                                      std::to_string(type) + ", not 1 to 6");
    }
    const bool control = type == static_cast<int64_t>(GgufTokenType::kControl) ||
                         type == static_cast<int64_t>(GgufTokenType::kUnknown);
    if (!control && type != static_cast<int64_t>(GgufTokenType::kUserDefined)) continue;
    vocabulary.added.push_back({.id = static_cast<TokenId>(i),
                                .content = vocabulary.tokens[i],
                                .control = control});
  }
  return OkStatus();
}

Status ReadSpecialIds(const GgufFile& file, BpeVocabulary& vocabulary) {
  const size_t size = vocabulary.tokens.size();
  RENGA_ASSIGN_OR_RETURN(vocabulary.bos,
                         ReadId(file, "tokenizer.ggml.bos_token_id", size));
  const std::string add_key = "tokenizer.ggml.add_bos_token";
  vocabulary.add_bos = vocabulary.split == SplitKind::kLlama3 && vocabulary.bos >= 0;
  if (file.Has(add_key)) {
    const StatusOr<bool> add = file.GetBool(add_key);
    if (!add.ok()) return NamingKey(add.status(), add_key);
    vocabulary.add_bos = *add;
  }
  const auto add_end = [&](TokenId id) {
    auto& ends = vocabulary.end_tokens;
    if (id >= 0 && std::find(ends.begin(), ends.end(), id) == ends.end()) {
      ends.push_back(id);
    }
  };
  for (const char* name : {"eos", "eot", "eom"}) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    RENGA_ASSIGN_OR_RETURN(const TokenId id, ReadId(file, key, size));
    add_end(id);
  }
  for (const AddedToken& token : vocabulary.added) {
    if (token.control && std::find(std::begin(kEndTexts), std::end(kEndTexts),
                                   token.content) != std::end(kEndTexts)) {
      add_end(token.id);
    }
  }
  return OkStatus();
}

// The text of the token that `key` names; empty if there is no such key.
StatusOr<std::string> ReadTokenText(const GgufFile& file, const std::string& key,
                                    const std::vector<std::string_view>& tokens) {
  RENGA_ASSIGN_OR_RETURN(const TokenId id, ReadId(file, key, tokens.size()));
  return id < 0 ? std::string() : std::string(tokens[static_cast<size_t>(id)]);
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const GgufFile& file) {
  RENGA_RETURN_IF_ERROR(CheckModel(file));
  BpeVocabulary vocabulary;
  RENGA_RETURN_IF_ERROR(ReadSplit(file, vocabulary));
  RENGA_ASSIGN_OR_RETURN(vocabulary.tokens, ReadStrings(file, "tokenizer.ggml.tokens"));
  RENGA_ASSIGN_OR_RETURN(vocabulary.merges, ReadStrings(file, "tokenizer.ggml.merges"));
  RENGA_RETURN_IF_ERROR(ReadTypes(file, vocabulary));
  RENGA_RETURN_IF_ERROR(ReadSpecialIds(file, vocabulary));
  StatusOr<std::unique_ptr<BpeTokenizer>> tokenizer = BpeTokenizer::Make(vocabulary);
  if (!tokenizer.ok()) {
    Status status = tokenizer.status();
    std::string field = "tokenizer.ggml." + status.field();
    return std::move(status).WithField(std::move(field));
  }
  return std::unique_ptr<Tokenizer>(std::move(*tokenizer));
}

StatusOr<std::unique_ptr<ChatTemplate>> LoadChatTemplate(const GgufFile& file) {
  const std::string key = "tokenizer.chat_template";
  if (!file.Has(key)) return std::unique_ptr<ChatTemplate>();
  const StatusOr<std::string_view> source = file.GetString(key);
  if (!source.ok()) return NamingKey(source.status(), key);
  const StatusOr<std::vector<std::string_view>> tokens =
      file.GetStrings("tokenizer.ggml.tokens");
  if (!tokens.ok()) return NamingKey(tokens.status(), "tokenizer.ggml.tokens");
  ChatTemplateTokens texts;
  RENGA_ASSIGN_OR_RETURN(texts.bos,
                         ReadTokenText(file, "tokenizer.ggml.bos_token_id", *tokens));
  RENGA_ASSIGN_OR_RETURN(texts.eos,
                         ReadTokenText(file, "tokenizer.ggml.eos_token_id", *tokens));
  StatusOr<std::unique_ptr<ChatTemplate>> parsed = ChatTemplate::Parse(*source, texts);
  if (!parsed.ok()) return NamingKey(parsed.status(), key);
  return parsed;
}

}  // namespace renga
