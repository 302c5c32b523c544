#include "text/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>

namespace renga {
namespace {

TEST(ByteAlphabetTest, EveryByteHasItsOwnCharacterAndReadsBack) {
  std::set<char32_t> seen;
  for (int byte = 0; byte < 256; ++byte) {
    seen.insert(ByteToAlphabet(static_cast<uint8_t>(byte)));
    const std::string one(1, static_cast<char>(byte));
    EXPECT_EQ(AlphabetToBytes(BytesToAlphabet(one)), one);
  }
  EXPECT_EQ(seen.size(), 256u);
}

TEST(ByteAlphabetTest, KnownCharacters) {
  EXPECT_EQ(BytesToAlphabet(" a\n"), "\u0120a\u010a");
  EXPECT_EQ(AlphabetToBytes("\u0120hi"), " hi");
  EXPECT_EQ(AlphabetToBytes(""), "");
}

TEST(ByteAlphabetTest, OtherCharactersAreNotInIt) {
  EXPECT_EQ(AlphabetToBytes(" "), std::nullopt);
  EXPECT_EQ(AlphabetToBytes("a\u65e5"), std::nullopt);
  EXPECT_EQ(AlphabetToBytes("\u0144"), std::nullopt);  // One behind the last.
  EXPECT_EQ(AlphabetToBytes("\xFF"), std::nullopt);
  EXPECT_EQ(AlphabetToBytes("\u00ad"), std::nullopt);
}

}  // namespace
}  // namespace renga
