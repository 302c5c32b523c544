#include "app/model_name.h"

#include <gtest/gtest.h>

namespace renga {
namespace {

std::string Name(const std::string& configured, const std::string& path,
                 const std::string& in_file) {
  ModelSettings settings;
  settings.name = configured;
  settings.path = path;
  return ServedModelName(settings, in_file);
}

TEST(ModelNameTest, TheConfiguredNameWinsThenTheFilesOwnThenItsPath) {
  EXPECT_EQ(Name("mine", "/m/a.gguf", "Own Name"), "mine");
  EXPECT_EQ(Name("", "/m/a.gguf", "Own Name"), "Own Name");
  EXPECT_EQ(Name("", "/m/a.gguf", ""), "a");
  EXPECT_EQ(Name("", "a", ""), "a");
}

TEST(ModelNameTest, ANameThatIsNotPlainTextIsNotUsed) {
  EXPECT_EQ(Name("", "/m/a.gguf", "x\ny"), "a");
  EXPECT_EQ(Name("", "/m/a.gguf", std::string(1000, 'x')), "a");
  EXPECT_EQ(Name("", "/m/\xff.gguf", "\xff"), "model");
  EXPECT_EQ(Name("", "/m/.gguf", ""), "model");
}

}  // namespace
}  // namespace renga
