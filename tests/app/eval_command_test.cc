#include "app/eval_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/models/temporary_folder.h"
#include "tests/models/tiny_model.h"

namespace renga {
namespace {

using testing::HasSubstr;

TEST(EvalCommand, PrintsPerplexityAndWithAReferenceKl) {
  const test::TemporaryFolder folder;
  Config config;
  config.model.path = folder / "a.gguf";
  config.device.threads = 1;
  ASSERT_TRUE(test::WriteTinyModel({.seed = 1}, config.model.path));
  ASSERT_TRUE(test::WriteTinyModel({.seed = 2}, folder / "b.gguf"));
  std::ostringstream out;
  std::ostringstream err;
  EXPECT_EQ(RunEval(config, {}, out, err), 0) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("Quality on the built-in text"));
  EXPECT_EQ(RunEval(config, {.reference = folder / "b.gguf"}, out, err), 0) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("KL(reference || model)"));
  EXPECT_EQ(err.str(), "");
}

TEST(EvalCommand, TheModelIsRequired) {
  std::ostringstream out;
  std::ostringstream err;
  EXPECT_EQ(RunEval({}, {}, out, err), 2);
  EXPECT_THAT(err.str(), HasSubstr("model.path"));
}

TEST(EvalCommand, FilesThatCannotBeReadAreNamed) {
  Config config;
  config.model.path = "/nonexistent/model.gguf";
  std::ostringstream out;
  std::ostringstream err;
  EXPECT_EQ(RunEval(config, {}, out, err), 1);
  EXPECT_THAT(err.str(), HasSubstr("model.gguf"));
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace renga
