#include "app/quantize_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <utility>
#include <vector>

#include "formats/gguf_file.h"
#include "tests/models/temporary_folder.h"
#include "tests/models/tiny_model.h"

namespace renga {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class QuantizeCommandTest : public testing::Test {
 protected:
  QuantizeCommandTest() {
    EXPECT_TRUE(test::WriteTinyModel({}, folder_ / "in.gguf"));
    options_ = {.input = folder_ / "in.gguf",
                .output = folder_ / "out.gguf",
                .type = "q4_1",
                .device = {.threads = 1}};
  }

  int Run() {
    out_.str("");
    err_.str("");
    return RunQuantize(options_, out_, err_);
  }
  uint32_t TypeOf(const char* tensor) {
    return (*GgufFile::Open(options_.output))->FindTensor(tensor)->ggml_type;
  }

  const test::TemporaryFolder folder_;
  QuantizeOptions options_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(QuantizeCommandTest, WritesTheFileAndSaysWhatItCosts) {
  ASSERT_EQ(Run(), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("in.gguf -> out.gguf"));
  EXPECT_THAT(out_.str(), HasSubstr("14 x Q4_1"));
  EXPECT_THAT(out_.str(), HasSubstr("1 x Q8_0")) << "the embedding keeps eight bits";
  EXPECT_THAT(out_.str(), HasSubstr("KL(reference || model)"));
  EXPECT_EQ(err_.str(), "");
}

TEST_F(QuantizeCommandTest, TheReportCanBeLeftOut) {
  options_.report = false;
  ASSERT_EQ(Run(), 0) << err_.str();
  EXPECT_THAT(out_.str(), Not(HasSubstr("Quality")));
}

TEST_F(QuantizeCommandTest, TheTablesCanHaveATypeOfTheirOwn) {
  options_.report = false;
  options_.embedding_type = "f16";
  ASSERT_EQ(Run(), 0) << err_.str();
  EXPECT_EQ(TypeOf("token_embd.weight"), 1u);
  EXPECT_EQ(TypeOf("blk.0.attn_q.weight"), 3u);
}

TEST_F(QuantizeCommandTest, RowsThatATypeDoesNotDivideAreReported) {
  options_.report = false;
  options_.type = "q4_k";
  ASSERT_EQ(Run(), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("14 tensors have rows that q4_k does not divide"));
}

TEST_F(QuantizeCommandTest, WrongOptionsAreNamedAndNothingIsWritten) {
  for (const auto& change : std::vector<std::pair<std::string, std::string>>{
           {"--type", "q5_0"}, {"--type", ""}}) {
    options_.type = change.second;
    EXPECT_EQ(Run(), 2);
    EXPECT_THAT(err_.str(), HasSubstr(change.first));
  }
  options_.type = "q8_0";
  options_.embedding_type = "x";
  EXPECT_EQ(Run(), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--embedding-type"));
  options_.embedding_type = "";
  options_.output = "";
  EXPECT_EQ(Run(), 2);
  EXPECT_THAT(err_.str(), HasSubstr("OUT"));
  EXPECT_THAT(folder_.Names(), ElementsAre("in.gguf"));
}

TEST_F(QuantizeCommandTest, AnExistingOutputNeedsForce) {
  options_.report = false;
  ASSERT_EQ(Run(), 0);
  EXPECT_EQ(Run(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("exists already"));
  options_.force = true;
  EXPECT_EQ(Run(), 0) << err_.str();
}

TEST_F(QuantizeCommandTest, AReportThatFailsKeepsTheFile) {
  options_.text_file = "/nonexistent";
  EXPECT_EQ(Run(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("is written, but not measured"));
  EXPECT_TRUE(GgufFile::Open(options_.output).ok());
}

}  // namespace
}  // namespace renga
