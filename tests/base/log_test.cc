// The log's two formats: one event stays one line, and JSON stays JSON, whatever a value
// holds.

#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace renga {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Captured(std::string_view level, std::string_view format, auto log) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(ConfigureLog(level, format).ok());
  log();
  return testing::internal::GetCapturedStderr();
}

TEST(LogTest, TextLineCarriesTheFields) {
  const std::string line = Captured("info", "text", [] {
    LogInfo("ready", {{"load_ms", 12}, {"model", "tiny"}});
  });
  EXPECT_THAT(line, HasSubstr(" info ready load_ms=12 model=tiny\n"));
}

TEST(LogTest, AValueCannotForgeALine) {
  const std::string line = Captured("info", "text", [] {
    LogInfo("refused", {{"name", "x\n2026-01-01 info forged"}});
  });
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST(LogTest, JsonEscapesQuotesAndControlCharacters) {
  const std::string line = Captured("info", "json", [] {
    LogInfo("refused", {{"name", "a\"b\\c\nd"}, {"count", 3}});
  });
  EXPECT_THAT(line, HasSubstr(R"("event":"refused","name":"a\"b\\c\u000ad","count":3})"));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST(LogTest, LinesBelowTheLevelAreNotWritten) {
  const std::string lines = Captured("warn", "text", [] {
    LogInfo("quiet");
    LogError("loud");
  });
  EXPECT_THAT(lines, Not(HasSubstr("quiet")));
  EXPECT_THAT(lines, HasSubstr("loud"));
}

TEST(LogTest, TheLevelChangesWhileItRunsAndTheFormatStays) {
  const std::string lines = Captured("warn", "json", [] {
    LogInfo("quiet");
    EXPECT_TRUE(SetLogLevel("debug").ok());
    LogInfo("loud");
    EXPECT_EQ(SetLogLevel("shouting").field(), "level");
    LogInfo("still");
  });
  EXPECT_THAT(lines, Not(HasSubstr("quiet")));
  EXPECT_THAT(lines, HasSubstr(R"("event":"loud")"));
  EXPECT_THAT(lines, HasSubstr(R"("event":"still")"));
}

TEST(LogTest, WrongSettingsAreNamed) {
  EXPECT_EQ(ConfigureLog("loud", "text").field(), "log.level");
  EXPECT_EQ(ConfigureLog("info", "xml").field(), "log.format");
}

}  // namespace
}  // namespace renga
