#include "text/nfc.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "text/utf8.h"

namespace renga {
namespace {

TEST(NfcTest, ComposesAndOrders) {
  EXPECT_EQ(NormalizeNfc(""), "");
  EXPECT_EQ(NormalizeNfc("plain"), "plain");
  EXPECT_EQ(NormalizeNfc("cafe\u0301"), "caf\u00e9");
  EXPECT_EQ(NormalizeNfc("a\u0301\u0323"), "\u1ea1\u0301");  // Marks change places.
  EXPECT_EQ(NormalizeNfc("\u1112\u1161\u11ab"), "\ud55c");   // Hangul.
  EXPECT_EQ(NormalizeNfc("\u212b"), "\u00c5");               // A singleton.
  EXPECT_EQ(NormalizeNfc("\u0958"), "\u0915\u093c");         // Never composed.
  EXPECT_EQ(NormalizeNfc("\ufb01"), "\ufb01");               // Not NFKC.
  EXPECT_EQ(NormalizeNfc(std::string("\u00e9\0b", 4)), std::string("\u00e9\0b", 4));
}

// The library's own normaliser is the reference; it is only slow.
TEST(NfcTest, RandomTextAgreesWithTheLibrary) {
  const std::vector<std::string> alphabet = {
      "a",      "e",      "o",      "\u0301",     "\u0323",     "\u0302",
      "\u0327", "\u0345", "\u00e9", "\u1e69",     "\u1100",     "\u1161",
      "\u11a8", "\uac00", "\u212b", "\u0958",     "\u093c",     "\u3099",
      "\u304b", "\u0f71", "\u0f72", "\U0001D15E", "\U0001F600", "x"};
  std::mt19937 rng(20240610);
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (size_t n = rng() % 10; n > 0; --n) text += alphabet[rng() % alphabet.size()];
    auto* expected =
        utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    ASSERT_EQ(NormalizeNfc(text), reinterpret_cast<const char*>(expected)) << text;
    std::free(expected);
  }
}

// Marks in the worst order: by insertion this is 10^10 steps.
TEST(NfcTest, ALongRunOfMarksIsSortedOnce) {
  std::string text = "a";
  for (int i = 0; i < (1 << 17); ++i) text += "\u0301\u0323";
  const std::string normal = NormalizeNfc(text);
  EXPECT_EQ(normal.substr(0, 5), "\u1ea1\u0323");
  EXPECT_EQ(CountCharacters(normal), 1 << 18);
}

}  // namespace
}  // namespace renga
