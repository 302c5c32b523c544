// Whole files: what is copied, what changes, what is refused and leaves nothing behind.

#include "quantize/quantise_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "formats/ggml_type.h"
#include "formats/gguf_file.h"
#include "formats/gguf_writer.h"
#include "quantize/block_codec.h"
#include "tests/models/temporary_folder.h"
#include "tests/models/tiny_model.h"

namespace renga {
namespace {

using test::TinyModelOptions;
using test::TinyType;
using testing::ElementsAre;
using testing::HasSubstr;

// Widths that Q4_K divides.
const TinyModelOptions kModel = {.tied = false, .dim = 256, .heads = 16, .ffn = 512};

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class QuantiseFileTest : public testing::Test {
 protected:
  QuantiseFileTest() { EXPECT_TRUE(test::WriteTinyModel(kModel, in_)); }

  StatusOr<QuantiseSummary> Run(uint32_t type, uint32_t embedding, int threads = 2,
                                const WorkProgress& progress = nullptr) {
    return QuantiseFile(in_, out_,
                        {.types = {.matrix = type, .embedding = embedding},
                         .replace = replace_,
                         .threads = threads},
                        progress);
  }

  void Write(test::GgufWriter writer) {
    EXPECT_TRUE(test::WriteFile(in_, writer.Finish()));
  }

  test::TemporaryFolder folder_;
  const std::string in_ = folder_ / "in.gguf";
  const std::string out_ = folder_ / "out.gguf";
  bool replace_ = false;
};

TEST_F(QuantiseFileTest, EveryTypeGivesAFileWhoseTensorsHaveIt) {
  replace_ = true;
  for (const uint32_t type :
       {kGgmlF32, kGgmlF16, kGgmlQ8_0, kGgmlQ4_0, kGgmlQ4_1, kGgmlQ4K}) {
    const auto summary = Run(type, kGgmlQ8_0);
    ASSERT_TRUE(summary.ok()) << summary.status().ToString();
    const auto file = GgufFile::Open(out_);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_EQ((*file)->FindTensor("blk.1.ffn_down.weight")->ggml_type, type);
    EXPECT_EQ((*file)->FindTensor("token_embd.weight")->ggml_type, kGgmlQ8_0);
    EXPECT_EQ((*file)->FindTensor("output.weight")->ggml_type, kGgmlQ8_0);
    EXPECT_EQ((*file)->FindTensor("output_norm.weight")->ggml_type, kGgmlF32);
    EXPECT_EQ(*(*file)->GetUint("general.quantization_version"), 2u);
    int64_t bytes = 0;
    for (const GgufTensor& tensor : (*file)->tensors()) {
      bytes += static_cast<int64_t>(tensor.bytes);
    }
    EXPECT_EQ(summary->bytes_after, bytes);
    EXPECT_TRUE(summary->fallbacks.empty());
  }
}

TEST_F(QuantiseFileTest, KeysAreCopiedAsTheyAreAndTensorsInTheirOrder) {
  test::GgufWriter writer = test::TinyModelWriter(kModel);
  writer.AddUint32("general.file_type", 99);
  writer.AddBytes("extra.bytes", {1, 2, 3});
  writer.AddStrings("extra.strings", {"", "two"});
  writer.AddBool("extra.flag", true);
  Write(std::move(writer));
  ASSERT_TRUE(Run(kGgmlQ4_1, kGgmlQ4_1).ok());
  const auto before = GgufFile::Open(in_);
  const auto after = GgufFile::Open(out_);
  ASSERT_TRUE(after.ok()) << after.status().ToString();
  EXPECT_EQ((*after)->Keys().size(), (*before)->Keys().size() + 1);
  EXPECT_EQ(*(*after)->GetUint("general.file_type"), 3u);
  EXPECT_EQ(*(*after)->GetStrings("tokenizer.ggml.merges"),
            *(*before)->GetStrings("tokenizer.ggml.merges"));
  EXPECT_THAT(*(*after)->GetStrings("extra.strings"), ElementsAre("", "two"));
  EXPECT_EQ(std::memcmp((*after)->FindValue("extra.bytes")->data, "\1\2\3", 3), 0);
  for (size_t i = 0; i < (*before)->tensors().size(); ++i) {
    EXPECT_EQ((*after)->tensors()[i].name, (*before)->tensors()[i].name);
    EXPECT_EQ((*after)->tensors()[i].dims, (*before)->tensors()[i].dims);
  }
}

TEST_F(QuantiseFileTest, NormsAndFloatsSurviveExactly) {
  ASSERT_TRUE(Run(kGgmlQ4_0, kGgmlF32).ok());
  const auto before = GgufFile::Open(in_);
  const auto after = GgufFile::Open(out_);
  for (const char* name : {"blk.0.attn_norm.weight", "token_embd.weight"}) {
    const GgufTensor* a = (*before)->FindTensor(name);
    const GgufTensor* b = (*after)->FindTensor(name);
    ASSERT_EQ(a->bytes, b->bytes) << name;
    EXPECT_EQ(std::memcmp(a->data, b->data, a->bytes), 0) << name;
  }
}

TEST_F(QuantiseFileTest, ATensorThatHasTheTypeKeepsItsBytes) {
  TinyModelOptions options = kModel;
  options.type = TinyType::kQ4_1;
  Write(test::TinyModelWriter(options));
  ASSERT_TRUE(Run(kGgmlQ4_1, kGgmlQ4_1).ok());
  const auto before = GgufFile::Open(in_);
  const auto after = GgufFile::Open(out_);
  for (size_t i = 0; i < (*before)->tensors().size(); ++i) {
    const GgufTensor& a = (*before)->tensors()[i];
    const GgufTensor& b = (*after)->tensors()[i];
    ASSERT_EQ(a.bytes, b.bytes);
    EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes), 0) << a.name;
  }
}

TEST_F(QuantiseFileTest, ThreadsDoNotChangeAByte) {
  replace_ = true;
  ASSERT_TRUE(Run(kGgmlQ4K, kGgmlQ8_0, 1).ok());
  const std::string one = Bytes(out_);
  ASSERT_TRUE(Run(kGgmlQ4K, kGgmlQ8_0, 3).ok());
  EXPECT_EQ(Bytes(out_), one);
}

TEST_F(QuantiseFileTest, ProgressCountsEveryValueOnce) {
  int64_t last = 0;
  int64_t total = 0;
  ASSERT_TRUE(Run(kGgmlQ8_0, kGgmlQ8_0, 1, [&](int64_t done, int64_t all) {
                EXPECT_GT(done, last);
                last = done;
                total = all;
                return true;
              }).ok());
  EXPECT_EQ(last, total);
}

TEST_F(QuantiseFileTest, StoppedWorkLeavesNothing) {
  const Status status =
      Run(kGgmlQ8_0, kGgmlQ8_0, 1, [](int64_t, int64_t) { return false; }).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_THAT(folder_.Names(), ElementsAre("in.gguf"));
}

TEST_F(QuantiseFileTest, AnExistingFileIsReplacedOnlyWhenAsked) {
  std::ofstream(out_) << "mine";
  EXPECT_EQ(Run(kGgmlQ8_0, kGgmlQ8_0).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Bytes(out_), "mine");
  replace_ = true;
  EXPECT_TRUE(Run(kGgmlQ8_0, kGgmlQ8_0).ok());
  EXPECT_TRUE(GgufFile::Open(out_).ok());
  EXPECT_EQ(folder_.Names().size(), 2u);
}

TEST_F(QuantiseFileTest, TheInputIsNeverTheOutput) {
  const std::string before = Bytes(in_);
  std::filesystem::create_symlink(in_, out_);
  replace_ = true;
  EXPECT_EQ(Run(kGgmlQ8_0, kGgmlQ8_0).status().field(), "OUT");
  EXPECT_EQ(Bytes(in_), before);
}

TEST_F(QuantiseFileTest, WeightsThatAreNoNumbersAreNamed) {
  for (const float bad : {std::nanf(""), INFINITY, 40000.0f}) {
    std::vector<std::byte> data(size_t{512} * 256 * 4);
    std::memcpy(data.data() + 4 * 70000, &bad, 4);
    test::GgufWriter writer = test::TinyModelWriter(kModel);
    writer.RemoveTensor("blk.1.ffn_up.weight");
    writer.AddTensor("blk.1.ffn_up.weight", 0, {256, 512}, data);
    Write(std::move(writer));
    const Status status = Run(kGgmlQ4K, kGgmlQ8_0).status();
    EXPECT_EQ(status.field(), "blk.1.ffn_up.weight");
    EXPECT_THAT(status.message(), HasSubstr(bad < 1e9f ? "too large" : "infinity"));
    EXPECT_THAT(folder_.Names(), ElementsAre("in.gguf"));
  }
}

TEST_F(QuantiseFileTest, PartsOfASplitModelAreRefused) {
  test::GgufWriter writer = test::TinyModelWriter(kModel);
  writer.AddUint32("split.count", 3);
  Write(std::move(writer));
  EXPECT_EQ(Run(kGgmlQ8_0, kGgmlQ8_0).status().field(), "split.count");
}

TEST_F(QuantiseFileTest, DamagedInputsAreRefused) {
  std::string bytes = Bytes(in_);
  std::ofstream(in_, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  EXPECT_FALSE(Run(kGgmlQ8_0, kGgmlQ8_0).ok());
  EXPECT_THAT(folder_.Names(), ElementsAre("in.gguf"));
}

TEST_F(QuantiseFileTest, WidthsThatDoNotDivideAreReported) {
  Write(test::TinyModelWriter({}));  // 64 and 96 wide.
  const auto summary = Run(kGgmlQ4K, kGgmlQ8_0);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(summary->fallbacks.size(), 14u);
  EXPECT_EQ(summary->fallbacks[0].second, "Q8_0");
}

}  // namespace
}  // namespace renga
