#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/text/json_support.h"
#include "text/utf8.h"

namespace renga {
namespace {

using test::ReadJson;
using test::ReadTokenizerJson;
using test::Text;

std::unique_ptr<BpeTokenizer> Llama3() {
  return std::move(
      *BpeTokenizer::Make(ReadTokenizerJson("tb_llama3", SplitKind::kLlama3)));
}

// Case B1 of the reported faults. "special-kept" shows a control token, which has no
// text here.
TEST(StreamDecoderTest, DecodesAsTheReference) {
  const boost::json::value golden = ReadJson("golden/cases/tokens.json");
  const auto tokenizer = Llama3();
  for (const auto& [name, ids] : golden.at("decode_ids").at("tb_llama3").as_object()) {
    const bool special = name == "special-kept";
    EXPECT_EQ(DecodeAll(*tokenizer, boost::json::value_to<std::vector<TokenId>>(ids)),
              special ? "hi" : Text(golden.at("decode").at("tb_llama3").at(name)))
        << name;
  }
}

TEST(StreamDecoderTest, HoldsACharacterUntilItIsWhole) {
  const auto tokenizer = Llama3();
  StreamDecoder decoder(*tokenizer);
  std::string out;
  for (const TokenId id : {270, 152}) {  // F0 9F, 98
    decoder.Append(id, out);
    EXPECT_EQ(out, "");
    EXPECT_TRUE(decoder.holds_bytes());
  }
  decoder.Append(128, out);
  EXPECT_EQ(out, "\U0001F600");
  EXPECT_FALSE(decoder.holds_bytes());
}

TEST(StreamDecoderTest, AWrongByteIsReplacedAsSoonAsItIsCertain) {
  const auto tokenizer = Llama3();
  StreamDecoder decoder(*tokenizer);
  std::string out;
  decoder.Append(226, out);
  decoder.Append(130, out);
  EXPECT_EQ(out, "");
  decoder.Append(97, out);
  EXPECT_EQ(out, "\uFFFDa");
  decoder.Append(255, out);
  EXPECT_EQ(out, "\uFFFDa\uFFFD");
}

// The definition, byte by byte: at each place the longest prefix of a character, or one
// byte.
std::string ReplaceInvalid(const std::string& bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Char c = DecodeUtf8(std::string_view(bytes).substr(at));
    out += c.verdict == Utf8Char::Verdict::kValid ? bytes.substr(at, c.length)
                                                  : std::string(kReplacementCharacter);
    at += c.length;
  }
  return out;
}

TEST(StreamDecoderTest, RandomIdsStreamAsTheyDecodeAtOnce) {
  const auto tokenizer = Llama3();
  std::mt19937 rng(7);
  for (int round = 0; round < 2000; ++round) {
    StreamDecoder decoder(*tokenizer);
    std::string streamed, bytes;
    for (size_t n = rng() % 12; n > 0; --n) {
      const auto id =
          static_cast<TokenId>(rng() % 3 == 0 ? 128 + rng() % 128 : rng() % 282);
      bytes += tokenizer->Bytes(id);
      std::string part;
      decoder.Append(id, part);
      EXPECT_FALSE(FindInvalidUtf8(part));
      streamed += part;
    }
    decoder.Flush(streamed);
    EXPECT_EQ(streamed, ReplaceInvalid(bytes));
  }
}

}  // namespace
}  // namespace renga
