#include "app/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace renga {
namespace {

constexpr char kBad[] = "\xEF\xBF\xBD";

TEST(TerminalTest, AFileIsNoTerminal) {
  const int descriptor = open("/dev/null", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  EXPECT_FALSE(IsTerminal(descriptor));
  close(descriptor);
  EXPECT_FALSE(IsTerminal(-1));
}

TEST(SafeForTerminalTest, TextOfAnyLanguageStaysAsItIs) {
  const std::string text = "Grüße, 世界!\n\tمرحبا 👩‍👩‍👧 e\u0301\n";
  EXPECT_EQ(SafeForTerminal(text), text);
  EXPECT_EQ(SafeForTerminal(""), "");
}

TEST(SafeForTerminalTest, NoEscapeSequenceGetsThrough) {
  EXPECT_EQ(SafeForTerminal("a\x1b[2Jb"), std::string("a") + kBad + "[2Jb");
  EXPECT_EQ(SafeForTerminal("\x1b]0;title\x07"), std::string(kBad) + "]0;title" + kBad);
  // The C1 form of ESC [ as UTF-8, and as a bare byte.
  EXPECT_EQ(SafeForTerminal("\xC2\x9B"
                            "31m"),
            std::string(kBad) + "31m");
  EXPECT_EQ(SafeForTerminal("\x9B"
                            "31m"),
            std::string(kBad) + "31m");
}

TEST(SafeForTerminalTest, NoByteBelow32GetsThroughButLineEndsAndTabs) {
  for (int byte = 0; byte < 0x20; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    const bool kept = byte == '\n' || byte == '\t';
    EXPECT_EQ(SafeForTerminal(text), kept ? text : kBad) << byte;
  }
  EXPECT_EQ(SafeForTerminal("\x7f"), kBad);
}

TEST(SafeForTerminalTest, ACarriageReturnGoesOnlyBeforeALineEnd) {
  EXPECT_EQ(SafeForTerminal("a\r\nb"), "a\nb");
  EXPECT_EQ(SafeForTerminal("real text\rfake"), std::string("real text") + kBad + "fake");
}

TEST(SafeForTerminalTest, DirectionOverridesAreShownNotObeyed) {
  EXPECT_EQ(SafeForTerminal("\u202eabc\u2066"), std::string(kBad) + "abc" + kBad);
}

TEST(SafeForTerminalTest, BrokenUtf8IsReplaced) {
  EXPECT_EQ(SafeForTerminal("a\xF0\x9F"), std::string("a") + kBad);
  EXPECT_EQ(SafeForTerminal("\xFF"), kBad);
}

}  // namespace
}  // namespace renga
