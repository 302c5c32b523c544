#include "text/load_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/models/gguf_writer.h"
#include "tests/models/tiny_model.h"
#include "tests/models/tiny_vocab.h"

namespace renga {
namespace {

using test::GgufWriter;
using testing::ElementsAre;
using testing::HasSubstr;

// The keys of the tiny models without their tensors.
GgufWriter TinyKeys() { return test::TinyModelWriter({}); }

// Owns the bytes of a file while it is read.
class Loaded {
 public:
  explicit Loaded(GgufWriter writer) : bytes_(writer.Finish()) {
    auto file = GgufFile::FromBytes("tiny.gguf", bytes_);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    if (file.ok()) file_ = std::move(*file);
  }
  const GgufFile& file() const { return *file_; }

 private:
  std::vector<std::byte> bytes_;
  std::unique_ptr<GgufFile> file_;
};

template <class Change>
Status StatusAfter(Change change) {
  GgufWriter writer = TinyKeys();
  change(writer);
  return LoadTokenizer(Loaded(std::move(writer)).file()).status();
}

TEST(LoadTokenizerTest, LoadsTheTinyVocabulary) {
  const Loaded loaded(TinyKeys());
  const auto tokenizer = LoadTokenizer(loaded.file());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_EQ((*tokenizer)->vocab_size(), test::TinyVocabSize());
  EXPECT_TRUE((*tokenizer)->IsControl(test::kTinyTurnEnd));
  EXPECT_EQ((*tokenizer)->Bytes(test::kTinyFirstByte + 'a'), "a");
  EXPECT_THAT((*tokenizer)->end_token_ids(),
              testing::UnorderedElementsAre(test::kTinyTurnEnd, test::kTinyEndOfText));
  const auto ids = (*tokenizer)->Encode({"<|im_end|>", {{0, 10}}});
  EXPECT_THAT(*ids, ElementsAre(test::kTinyTurnEnd));
}

TEST(LoadTokenizerTest, MissingAndIllTypedKeysAreNamed) {
  for (const std::string key :
       {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
        "tokenizer.ggml.merges", "tokenizer.ggml.token_type"}) {
    const Status missing = StatusAfter([&](GgufWriter& w) { w.Remove(key); });
    EXPECT_EQ(missing.code(), StatusCode::kInvalidArgument) << key;
    EXPECT_EQ(missing.field(), key);
    const Status wrong = StatusAfter([&](GgufWriter& w) {
      w.Remove(key);
      w.AddFloat32(key, 1.0f);
    });
    EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument) << key;
    EXPECT_EQ(wrong.field(), key);
  }
}

TEST(LoadTokenizerTest, UnknownModelsAndSplitsAreRefusedByName) {
  const Status model = StatusAfter([](GgufWriter& w) {
    w.Remove("tokenizer.ggml.model");
    w.AddString("tokenizer.ggml.model", "llama");
  });
  EXPECT_EQ(model.field(), "tokenizer.ggml.model");
  EXPECT_THAT(model.message(), HasSubstr("\"llama\""));
  const Status split = StatusAfter([](GgufWriter& w) {
    w.Remove("tokenizer.ggml.pre");
    w.AddString("tokenizer.ggml.pre", "tekken");
  });
  EXPECT_EQ(split.field(), "tokenizer.ggml.pre");
  EXPECT_THAT(split.message(), HasSubstr("\"tekken\""));
}

TEST(LoadTokenizerTest, IdsOutOfRangeAreRefused) {
  for (const std::string key :
       {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.eot_token_id"}) {
    for (const uint32_t id :
         {static_cast<uint32_t>(test::TinyVocabSize()), ~uint32_t{0}}) {
      const Status status = StatusAfter([&](GgufWriter& w) {
        w.Remove(key);
        w.AddUint32(key, id);
      });
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << key;
      EXPECT_EQ(status.field(), key);
    }
  }
}

TEST(LoadTokenizerTest, BrokenTablesAreRefused) {
  const auto with_types = [](std::vector<int32_t> types) {
    return StatusAfter([&](GgufWriter& w) {
      w.Remove("tokenizer.ggml.token_type");
      w.AddInts("tokenizer.ggml.token_type", types);
    });
  };
  const auto count = static_cast<size_t>(test::TinyVocabSize());
  EXPECT_EQ(with_types(std::vector<int32_t>(count - 1, 1)).field(),
            "tokenizer.ggml.token_type");
  EXPECT_EQ(with_types(std::vector<int32_t>(count, 7)).field(),
            "tokenizer.ggml.token_type");
  EXPECT_EQ(with_types(std::vector<int32_t>(count, 0)).field(),
            "tokenizer.ggml.token_type");
  // Every merge would make a control token.
  EXPECT_THAT(with_types(std::vector<int32_t>(count, 3)).field(),
              HasSubstr("tokenizer.ggml.merges["));
  const Status merges = StatusAfter([](GgufWriter& w) {
    w.Remove("tokenizer.ggml.merges");
    w.AddStrings("tokenizer.ggml.merges", {"nosuch token"});
  });
  EXPECT_EQ(merges.field(), "tokenizer.ggml.merges[0]");
  const Status tokens = StatusAfter([&](GgufWriter& w) {
    w.Remove("tokenizer.ggml.tokens");
    w.AddStrings("tokenizer.ggml.tokens", std::vector<std::string>(count, "same"));
  });
  EXPECT_EQ(tokens.field(), "tokenizer.ggml.tokens[1]");
}

TEST(LoadTokenizerTest, UserDefinedTokensMatchInAnyText) {
  GgufWriter writer = TinyKeys();
  test::TinyVocab vocab = test::MakeTinyVocab(0);
  vocab.tokens.push_back("<fn>");
  vocab.types.push_back(4);
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type"}) {
    writer.Remove(key);
  }
  writer.AddStrings("tokenizer.ggml.tokens", vocab.tokens);
  writer.AddInts("tokenizer.ggml.token_type", vocab.types);
  const Loaded loaded(std::move(writer));
  const auto tokenizer = LoadTokenizer(loaded.file());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_THAT(*(*tokenizer)->Encode({"<fn>", {}}), ElementsAre(test::TinyVocabSize()));
}

TEST(LoadTokenizerTest, TheChatTemplateIsOptionalAndChecked) {
  const ChatInput chat{.messages = {{"user", "hi"}}};
  const Loaded with(TinyKeys());
  const auto parsed = LoadChatTemplate(with.file());
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_THAT((*parsed)->Render(chat)->text,
              HasSubstr("<|im_start|>user\nhi<|im_end|>\n"));

  GgufWriter without = TinyKeys();
  without.Remove("tokenizer.chat_template");
  const Loaded none(std::move(without));
  ASSERT_TRUE(LoadChatTemplate(none.file()).ok());
  EXPECT_EQ(*LoadChatTemplate(none.file()), nullptr);

  GgufWriter broken = TinyKeys();
  broken.Remove("tokenizer.chat_template");
  broken.AddString("tokenizer.chat_template", "\n{% if %}");
  const Loaded bad(std::move(broken));
  const Status status = LoadChatTemplate(bad.file()).status();
  EXPECT_THAT(status.message(), HasSubstr("line 2, column 7"));
}

TEST(LoadTokenizerTest, TheTemplateSeesTheTextsOfBosAndEos) {
  GgufWriter writer = TinyKeys();
  for (const char* key : {"tokenizer.chat_template", "tokenizer.ggml.bos_token_id",
                          "tokenizer.ggml.eos_token_id"}) {
    writer.Remove(key);
  }
  writer.AddString("tokenizer.chat_template", "{{ bos_token }}|{{ eos_token }}");
  writer.AddUint32("tokenizer.ggml.bos_token_id", test::kTinyTurnStart);
  writer.AddUint32("tokenizer.ggml.eos_token_id", test::kTinyTurnEnd);
  const Loaded loaded(std::move(writer));
  EXPECT_EQ((*LoadChatTemplate(loaded.file()))->Render({})->text,
            "<|im_start|>|<|im_end|>");
}

}  // namespace
}  // namespace renga
