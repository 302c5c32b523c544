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

TEST_F(CommandLineTest, ChatTakesATargetOrAModel) {
  CommandLine line =
      Parse({"chat", "--target", "host:1", "--key-file", "k", "--system", "Be brief."});
  EXPECT_EQ(line.command, Command::kChat);
  EXPECT_EQ(line.chat.target, "host:1");
  EXPECT_EQ(line.chat.key_file, "k");
  EXPECT_EQ(line.chat.system, "Be brief.");
  line = Parse({"chat", "--model.path", "m.gguf"});
  EXPECT_THAT(line.sources.flags, ElementsAre(Pair("model.path", "m.gguf")));
  EXPECT_EQ(line.chat.target, "");
}

TEST_F(CommandLineTest, QuantizeHasItsOwnOptionsAndThoseOfTheDevice) {
  CommandLine line = Parse({"quantize", "in.gguf", "out.gguf", "--type", "q4_k",
                            "--device.threads", "2", "--force"});
  EXPECT_EQ(line.command, Command::kQuantize);
  EXPECT_EQ(line.quantize.input, "in.gguf");
  EXPECT_EQ(line.quantize.output, "out.gguf");
  EXPECT_EQ(line.quantize.type, "q4_k");
  EXPECT_TRUE(line.quantize.force);
  EXPECT_TRUE(line.quantize.report);
  EXPECT_THAT(line.sources.flags, ElementsAre(Pair("device.threads", "2")));
  line = Parse({"quantize", "in", "out", "--type", "f32", "--no-report", "--text", "t",
                "--embedding-type", "q8_0"});
  EXPECT_FALSE(line.quantize.report);
  EXPECT_EQ(line.quantize.text_file, "t");
  EXPECT_EQ(line.quantize.embedding_type, "q8_0");
  EXPECT_EQ(Parse({"quantize", "in", "out"}).exit_code, 2);
  EXPECT_EQ(Parse({"quantize", "in", "--type", "f32"}).exit_code, 2);
  EXPECT_EQ(Parse({"quantize", "in", "out", "--type", "f32", "--grpc.address", "x:1"})
                .exit_code,
            2);
}

TEST_F(CommandLineTest, EvalAndDoctorHaveTheirOptions) {
  CommandLine line =
      Parse({"eval", "--model.path", "a", "--reference", "b", "--text", "t"});
  EXPECT_EQ(line.command, Command::kEval);
  EXPECT_EQ(line.eval.reference, "b");
  EXPECT_EQ(line.eval.text_file, "t");
  line = Parse({"doctor", "--json", "--grpc.address", "0.0.0.0:1"});
  EXPECT_EQ(line.command, Command::kDoctor);
  EXPECT_TRUE(line.doctor.json);
  EXPECT_THAT(line.sources.flags, ElementsAre(Pair("grpc.address", "0.0.0.0:1")));
}

TEST_F(CommandLineTest, HelpListsEveryCommand) {
  Parse({"--help"});
  for (const char* name :
       {"serve", "gateway", "chat", "tokenize", "quantize", "eval", "doctor"}) {
    EXPECT_THAT(out_.str(), HasSubstr(name));
  }
}

}  // namespace
}  // namespace renga
