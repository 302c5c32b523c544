#include "app/config_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "app/config_schema.h"

namespace renga {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// A legal value of the field that is not its default.
std::string OtherValue(const ConfigField& field) {
  Config config;
  const ConfigValue value = field.value(config);
  if (bool* const* place = std::get_if<bool*>(&value)) return **place ? "false" : "true";
  if (std::string* const* place = std::get_if<std::string*>(&value)) {
    if (field.unit.starts_with("host:port")) return "localhost:1";
    if (field.name == "device.name") return "cuda:1";
    if (field.choices.empty()) return "some text: #1 \"quoted\" \\ back";
    const size_t bar = field.choices.find('|');
    const std::string first(field.choices.substr(0, bar));
    if (first != **place) return first;
    const std::string_view rest = field.choices.substr(bar + 1);
    return std::string(rest.substr(0, rest.find('|')));
  }
  return std::to_string(field.max - 1);
}

std::string Text(const ConfigField& field, const Config& config) {
  return ConfigFieldYaml(field, config);
}

class ConfigLoaderTest : public testing::Test {
 protected:
  std::string WriteFile(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }
  Status FileError(const std::string& text) {
    return LoadConfig({.file = WriteFile(text), .environment = {}, .flags = {}}).status();
  }
  static StatusOr<LoadedConfig> FromEnvironment(std::vector<std::string> environment) {
    return LoadConfig({.file = "", .environment = std::move(environment), .flags = {}});
  }

  const std::string path_ =
      testing::TempDir() + "renga_config_loader_test_" +
      testing::UnitTest::GetInstance()->current_test_info()->name() + ".yaml";
};

TEST_F(ConfigLoaderTest, NothingGivenMeansDefaults) {
  const auto loaded = LoadConfig({});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(PrintConfig(loaded->config), PrintConfig(Config()));
}

TEST_F(ConfigLoaderTest, EveryFieldCanComeFromEverySource) {
  for (const ConfigField& field : ConfigSchema()) {
    const std::string other = OtherValue(field);
    Config expected;
    ASSERT_TRUE(SetConfigField(field, other, expected).ok()) << field.name << other;
    // One of the two that must agree.
    if (field.name == "scheduler.max_sequences") continue;
    const size_t dot = field.name.find('.');
    const std::string yaml = std::string(field.name.substr(0, dot)) + ": {" +
                             std::string(field.name.substr(dot + 1)) + ": " +
                             Text(field, expected) + "}\n";
    const ConfigSources sources[] = {
        {.file = WriteFile(yaml), .environment = {}, .flags = {}},
        {.file = "", .environment = {EnvironmentName(field) + '=' + other}, .flags = {}},
        {.file = "", .environment = {}, .flags = {{std::string(field.name), other}}},
    };
    for (const ConfigSources& source : sources) {
      const auto loaded = LoadConfig(source);
      ASSERT_TRUE(loaded.ok()) << field.name << ": " << loaded.status().ToString();
      EXPECT_EQ(PrintConfig(loaded->config), PrintConfig(expected)) << field.name;
    }
  }
}

TEST_F(ConfigLoaderTest, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  ConfigSources sources{
      .file = WriteFile("scheduler: {window_ms: 1, max_batch: 1}\n"
                        "log: {level: warn}\n"),
      .environment = {"RENGA_SCHEDULER_WINDOW_MS=2", "RENGA_SCHEDULER_MAX_BATCH=2"},
      .flags = {{"scheduler.window_ms", "3"}}};
  const auto loaded = LoadConfig(sources);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->config.scheduler.window_ms, 3);
  EXPECT_EQ(loaded->config.scheduler.max_batch, 2);
  EXPECT_EQ(loaded->config.log.level, "warn");
  EXPECT_EQ(loaded->config.log.format, "text");
}

TEST_F(ConfigLoaderTest, AWrongKeyOrValueInAFileIsNamedWithItsLine) {
  const Status key = FileError("\nscheduler:\n  windwo_ms: 5\n");
  EXPECT_EQ(key.field(), "scheduler.windwo_ms");
  EXPECT_THAT(key.message(), HasSubstr("line 3"));
  EXPECT_THAT(key.message(), HasSubstr(path_));
  const Status value = FileError("scheduler:\n  window_ms: -5\n");
  EXPECT_EQ(value.field(), "scheduler.window_ms");
  EXPECT_THAT(value.message(), HasSubstr("line 2"));
  EXPECT_EQ(FileError("shceduler: {window_ms: 1}\n").field(), "shceduler.window_ms");
  EXPECT_EQ(FileError("log: {level: }\n").field(), "log.level");
  EXPECT_EQ(FileError("log: {level: [info]}\n").field(), "log.level");
  EXPECT_EQ(FileError("log: info\n").field(), "log");
  EXPECT_THAT(FileError("log: {level: info, level: warn}\n").message(),
              HasSubstr("twice"));
  EXPECT_THAT(FileError("log: {level: info}\nlog: {level: warn}\n").message(),
              HasSubstr("twice"));
}

TEST_F(ConfigLoaderTest, WhatIsNotYamlIsAnErrorNeverAnException) {
  for (const char* text : {"a: [1", "- 1\n- 2", "just words", "{a: b", "? [x]\n: y\n",
                           "log: {[a]: b}", "log: *nothing", "\x01\xff\xfe",
                           "%YAML 9.9\n---\na", "\t- tab", "log: !!binary x"}) {
    const Status status = FileError(text);
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(FileError(std::string(100'000, '[')).ok());
  EXPECT_FALSE(FileError(std::string((1 << 20) + 1, ' ')).ok());
  EXPECT_TRUE(FileError("").ok());
  EXPECT_TRUE(FileError("# nothing\nlog:\n").ok());
}

TEST_F(ConfigLoaderTest, AMissingFileOrAFolderIsNamed) {
  const auto missing =
      LoadConfig({.file = "/nowhere.yaml", .environment = {}, .flags = {}});
  EXPECT_THAT(missing.status().message(), HasSubstr("/nowhere.yaml"));
  EXPECT_FALSE(
      LoadConfig({.file = testing::TempDir(), .environment = {}, .flags = {}}).ok());
}

TEST_F(ConfigLoaderTest, AWrongVariableStopsTheStartWithItsName) {
  const Status value = FromEnvironment({"RENGA_LOG_LEVEL=loud"}).status();
  EXPECT_EQ(value.field(), "log.level");
  EXPECT_THAT(value.message(), HasSubstr("RENGA_LOG_LEVEL"));
  EXPECT_EQ(FromEnvironment({"RENGA_SCHEDULER_WINDWO_MS=5"}).status().field(),
            "RENGA_SCHEDULER_WINDWO_MS");
}

TEST_F(ConfigLoaderTest, VariablesOfOthersAreLeftAlone) {
  const auto loaded = FromEnvironment(
      {"PATH=/bin", "RENGA_TEST_MODEL=/m.gguf", "RENGA_MODEL_DIR=/m", "NOTRENGA_LOG_X=1",
       "RENGA_GRPC_PORT=tcp://10.0.0.1:50051", "RENGA_GRPC_SERVICE_HOST=10.0.0.1",
       "RENGA_GRPC_PORT_50051_TCP_ADDR=10.0.0.1", "RENGA_LOG_LEVEL"});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_THAT(loaded->warnings, IsEmpty());
}

TEST_F(ConfigLoaderTest, AMistypedVariableIsNamedWithWhatWasMeant) {
  for (const char* name : {"RENGA_SCHEDULR_WINDOW_MS", "RENGA_SHCEDULER_WINDOW_MS",
                           "RENGA_SCHEDULER_WINDOWMS", "RENGA_SCHEDULERS_WINDOW_MS"}) {
    const Status status = FromEnvironment({std::string(name) + "=5"}).status();
    EXPECT_EQ(status.field(), name);
    EXPECT_THAT(status.message(), HasSubstr("RENGA_SCHEDULER_WINDOW_MS")) << name;
  }
}

TEST_F(ConfigLoaderTest, AVariableThatIsNearNoSettingIsAWarning) {
  const auto loaded = FromEnvironment({"RENGA_FUZZ_SECONDS=5", "RENGA_LLAMA_BIN=/x",
                                       "RENGA_" + std::string(100'000, 'X') + "=1"});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  ASSERT_EQ(loaded->warnings.size(), 3u);
  EXPECT_THAT(loaded->warnings[0], HasSubstr("RENGA_FUZZ_SECONDS"));
}

TEST_F(ConfigLoaderTest, AWrongFlagIsNamed) {
  const auto loaded =
      LoadConfig({.file = "", .environment = {}, .flags = {{"kv.dtype", "int4"}}});
  EXPECT_EQ(loaded.status().field(), "kv.dtype");
  EXPECT_THAT(loaded.status().message(), HasSubstr("flag --kv.dtype"));
}

TEST_F(ConfigLoaderTest, WhatIsPrintedLoadsAgainToTheSame) {
  Config config;
  for (const ConfigField& field : ConfigSchema()) {
    if (field.name == "scheduler.max_sequences") continue;
    ASSERT_TRUE(SetConfigField(field, OtherValue(field), config).ok()) << field.name;
  }
  const std::string printed = PrintConfig(config);
  const auto loaded =
      LoadConfig({.file = WriteFile(printed), .environment = {}, .flags = {}});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(PrintConfig(loaded->config), printed);
  EXPECT_NE(printed, PrintConfig(Config()));
}

TEST_F(ConfigLoaderTest, PrintedLinesFitNinetyColumns) {
  std::istringstream lines(PrintConfig(Config()));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 90u) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
  }
}

std::string ReadWhole(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST_F(ConfigLoaderTest, TheShippedServerFileIsWhatPrintConfigPrints) {
  EXPECT_EQ(ReadWhole(RENGA_TEST_DATA "/../configs/server.yaml"), PrintConfig(Config()));
}

TEST_F(ConfigLoaderTest, TheShippedDevFileLoads) {
  const auto loaded = LoadConfig(
      {.file = RENGA_TEST_DATA "/../configs/dev.yaml", .environment = {}, .flags = {}});
  EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
}

}  // namespace
}  // namespace renga
