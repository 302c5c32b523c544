#include "app/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "app/config_schema.h"

namespace renga {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using Command = CommandLine::Command;

class CommandLineTest : public testing::Test {
 protected:
  CommandLine Parse(std::vector<const char*> words) {
    words.insert(words.begin(), "renga");
    out_.str("");
    err_.str("");
    return ParseCommandLine(static_cast<int>(words.size()), words.data(), out_, err_);
  }

  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(CommandLineTest, ServeCollectsFileAndFlagsInSchemaOrder) {
  const CommandLine line = Parse({"serve", "--config", "x.yaml", "--log.level", "debug",
                                  "--model.path=m.gguf", "--kv.pool_bytes", "1GiB"});
  EXPECT_EQ(line.command, Command::kServe);
  EXPECT_EQ(line.sources.file, "x.yaml");
  EXPECT_THAT(line.sources.flags,
              ElementsAre(Pair("model.path", "m.gguf"), Pair("kv.pool_bytes", "1GiB"),
                          Pair("log.level", "debug")));
  EXPECT_FALSE(line.print_config);
}

TEST_F(CommandLineTest, EveryFieldIsAFlagOfServe) {
  for (const ConfigField& field : ConfigSchema()) {
    const std::string flag = "--" + std::string(field.name);
    const CommandLine line = Parse({"serve", flag.c_str(), "value"});
    EXPECT_THAT(line.sources.flags, ElementsAre(Pair(std::string(field.name), "value")));
  }
}

TEST_F(CommandLineTest, AnUnknownFlagIsNamedFirst) {
  EXPECT_EQ(Parse({"serve", "--scheduler.windwo_ms", "3"}).exit_code, 2);
  EXPECT_THAT(err_.str(),
              HasSubstr("error: --scheduler.windwo_ms: there is no such setting"));
}

TEST_F(CommandLineTest, AValueMayLookLikeANegativeNumber) {
  const CommandLine line = Parse({"serve", "--scheduler.window_ms=-5"});
  EXPECT_THAT(line.sources.flags, ElementsAre(Pair("scheduler.window_ms", "-5")));
}

TEST_F(CommandLineTest, UnknownOrRepeatedFlagsAndCommandsAreRefusedByName) {
  for (const std::vector<const char*>& words : std::vector<std::vector<const char*>>{
           {},
           {"fly"},
           {"serve", "--scheduler.windwo_ms", "5"},
           {"serve", "--log.level"},
           {"serve", "--log.level", "info", "--log.level", "warn"},
           {"serve", "stray"}}) {
    const CommandLine line = Parse(words);
    EXPECT_EQ(line.command, Command::kExit);
    EXPECT_EQ(line.exit_code, 2);
    EXPECT_FALSE(err_.str().empty());
  }
  Parse({"serve", "--scheduler.windwo_ms", "5"});
  EXPECT_THAT(err_.str(), HasSubstr("scheduler.windwo_ms"));
}

TEST_F(CommandLineTest, HelpAndVersionGoToStandardOutput) {
  EXPECT_EQ(Parse({"--version"}).exit_code, 0);
  EXPECT_THAT(out_.str(), HasSubstr("renga 0."));
  EXPECT_EQ(Parse({"--help"}).exit_code, 0);
  EXPECT_THAT(out_.str(), HasSubstr("serve"));
  EXPECT_EQ(Parse({"serve", "--help"}).exit_code, 0);
  EXPECT_THAT(out_.str(), HasSubstr("--scheduler.window_ms"));
}

TEST_F(CommandLineTest, TokenizeTakesItsTextOrReadsInput) {
  EXPECT_EQ(Parse({"tokenize", "--model.path", "m", "some text"}).text, "some text");
  EXPECT_EQ(Parse({"tokenize", "--model.path", "m"}).text, std::nullopt);
  EXPECT_EQ(Parse({"tokenize", "--model.path", "m", ""}).text, "");
}

}  // namespace
}  // namespace renga
