#include "app/config_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace renga {
namespace {

using testing::HasSubstr;

Status Set(std::string_view name, std::string_view text) {
  Config config;
  return SetConfigField(*FindConfigField(name), text, config);
}

TEST(ConfigSchemaTest, EveryFieldHasItsOwnNamePlaceAndWords) {
  Config config;
  std::set<std::string> names;
  std::set<const void*> places;
  for (const ConfigField& field : ConfigSchema()) {
    EXPECT_TRUE(names.insert(EnvironmentName(field)).second) << field.name;
    const void* place = std::visit([](auto* p) { return static_cast<const void*>(p); },
                                   field.value(config));
    EXPECT_TRUE(places.insert(place).second) << field.name;
    EXPECT_FALSE(field.doc.empty()) << field.name;
  }
}

// A setting that is added to Config and forgotten in the table would be dead: it would
// leave a hole between the places of its neighbours that alignment does not explain.
TEST(ConfigSchemaTest, EveryMemberOfConfigIsInTheTable) {
  struct Place {
    size_t begin, size, align;
  };
  Config config;
  const auto* base = reinterpret_cast<const char*>(&config);
  std::vector<Place> places;
  for (const ConfigField& field : ConfigSchema()) {
    std::visit(
        [&](auto* p) {
          places.push_back({static_cast<size_t>(reinterpret_cast<const char*>(p) - base),
                            sizeof(*p), alignof(decltype(*p))});
        },
        field.value(config));
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.begin < b.begin; });
  places.push_back({sizeof(Config), 0, alignof(Config)});
  size_t end = 0;
  for (const Place& place : places) {
    EXPECT_LT(place.begin - end, place.align) << "at byte " << end << " of Config";
    end = place.begin + place.size;
  }
}

TEST(ConfigSchemaTest, EveryDefaultIsAcceptedByItsOwnField) {
  const Config defaults;
  for (const ConfigField& field : ConfigSchema()) {
    std::string text = ConfigFieldYaml(field, defaults);
    if (text.starts_with('"')) text = text.substr(1, text.size() - 2);
    Config config;
    EXPECT_TRUE(SetConfigField(field, text, config).ok()) << field.name;
  }
  EXPECT_TRUE(CheckConfig(defaults).ok());
}

TEST(ConfigSchemaTest, EveryNumberRefusesWhatIsOutsideItsLimits) {
  for (const ConfigField& field : ConfigSchema()) {
    Config config;
    const ConfigValue value = field.value(config);
    if (std::holds_alternative<std::string*>(value)) continue;
    if (std::holds_alternative<bool*>(value)) continue;
    EXPECT_LT(field.min, field.max) << field.name;
    const auto accepts = [&](const std::string& text) {
      return SetConfigField(field, text, config).ok();
    };
    EXPECT_TRUE(accepts(std::to_string(field.min))) << field.name;
    EXPECT_TRUE(accepts(std::to_string(field.max))) << field.name;
    EXPECT_FALSE(accepts(std::to_string(field.min - 1))) << field.name;
    EXPECT_FALSE(accepts(std::to_string(field.max + 1))) << field.name;
    for (const char* wrong : {"", " 1", "1 ", "1.5", "0x10", "one", "1e3", "+1", "--1",
                              "99999999999999999999"}) {
      EXPECT_FALSE(accepts(wrong)) << field.name << " took \"" << wrong << '"';
    }
  }
}

TEST(ConfigSchemaTest, AWrongValueIsNamedWithWhatIsRight) {
  const Status number = Set("scheduler.window_ms", "soon");
  EXPECT_EQ(number.field(), "scheduler.window_ms");
  EXPECT_THAT(number.message(), HasSubstr("from 0 to 60000"));
  const Status choice = Set("log.format", "xml");
  EXPECT_EQ(choice.field(), "log.format");
  EXPECT_THAT(choice.message(), HasSubstr("text|json"));
  EXPECT_THAT(Set("scheduler.leave_when_idle", "yes").message(),
              HasSubstr("true or false"));
}

TEST(ConfigSchemaTest, ChoicesAreWholeWords) {
  EXPECT_TRUE(Set("device.isa", "avx2").ok());
  EXPECT_TRUE(Set("device.isa", "avx512").ok());
  EXPECT_TRUE(Set("device.isa", "amx").ok());
  for (const char* wrong : {"avx", "", "auto|portable", "AVX2", "avx2 "}) {
    EXPECT_FALSE(Set("device.isa", wrong).ok()) << wrong;
  }
}

TEST(ConfigSchemaTest, DevicesAreNamed) {
  for (const char* right : {"auto", "cpu", "cuda", "cuda:7"}) {
    EXPECT_TRUE(Set("device.name", right).ok()) << right;
  }
  for (const char* wrong : {"", "gpu", "cuda:", "cuda:-1"}) {
    EXPECT_EQ(Set("device.name", wrong).field(), "device.name") << wrong;
  }
}

TEST(ConfigSchemaTest, AddressesHaveHostAndPort) {
  for (const char* right :
       {"127.0.0.1:0", "localhost:65535", "[::1]:50051", "0.0.0.0:1"}) {
    EXPECT_TRUE(Set("grpc.address", right).ok()) << right;
  }
  for (const char* wrong : {"", ":", "127.0.0.1", ":80", "h:65536", "h:-1", "h:", "h:x",
                            "::1:80", "[]:1", "http://h:1", "a b:1"}) {
    EXPECT_FALSE(Set("grpc.address", wrong).ok()) << wrong;
  }
}

TEST(ConfigSchemaTest, BytesMayHaveAUnit) {
  const ConfigField& field = *FindConfigField("kv.pool_bytes");
  Config config;
  ASSERT_TRUE(SetConfigField(field, "64MiB", config).ok());
  EXPECT_EQ(config.kv.pool_bytes, int64_t{64} << 20);
  ASSERT_TRUE(SetConfigField(field, "2 GiB", config).ok());
  EXPECT_EQ(config.kv.pool_bytes, int64_t{2} << 30);
  for (const char* wrong : {"64MB", "GiB", "-1GiB", "1TiB", "9999999999GiB"}) {
    EXPECT_FALSE(SetConfigField(field, wrong, config).ok()) << wrong;
  }
}

TEST(ConfigSchemaTest, TextRefusesControlCharacters) {
  EXPECT_TRUE(Set("model.path", "/models/a b.gguf").ok());
  EXPECT_FALSE(Set("model.path", "a\nb").ok());
  EXPECT_FALSE(Set("model.path", std::string_view("a\0b", 3)).ok());
  EXPECT_FALSE(Set("model.name", std::string(5000, 'x')).ok());
}

TEST(ConfigSchemaTest, AStepMustHoldARowOfEverySequence) {
  Config config;
  config.scheduler.max_sequences = 600;
  EXPECT_EQ(CheckConfig(config).field(), "scheduler.max_step_tokens");
  config.scheduler.max_step_tokens = 600;
  EXPECT_TRUE(CheckConfig(config).ok());
}

}  // namespace
}  // namespace renga
