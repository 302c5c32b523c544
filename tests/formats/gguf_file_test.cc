// What a good file gives, and what the accessors answer.

#include "formats/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/models/allocation_meter.h"
#include "tests/models/gguf_writer.h"
#include "tests/models/tiny_model.h"

namespace renga {
namespace {

using test::GgufWriter;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string TempPath(const std::string& name) { return testing::TempDir() + name; }

// The bytes must outlive the file: both in one.
struct Opened {
  std::vector<std::byte> bytes;
  std::unique_ptr<GgufFile> file;
};

Opened OpenGood(GgufWriter writer) {
  Opened opened{.bytes = writer.Finish(), .file = nullptr};
  auto file = GgufFile::FromBytes("good.gguf", opened.bytes);
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  if (file.ok()) opened.file = std::move(*file);
  return opened;
}

GgufWriter AllTypes() {
  GgufWriter writer;
  writer.AddUint8("u8", 200);
  writer.AddUint32("u32", 4000000000u);
  writer.AddUint64("u64", ~uint64_t{0});
  writer.AddInt32("minus", -1);
  writer.AddInt32("i32", 7);
  writer.AddFloat32("f32", 1.5f);
  writer.AddBool("yes", true);
  writer.AddString("text", "caf\xc3\xa9");
  writer.AddString("empty", "");
  writer.AddStrings("strings", {"a", "", "bc"});
  writer.AddInts("ints", {3, -4});
  writer.AddFloats("floats", {0.5f, -2.0f});
  writer.AddBytes("bytes", {1, 2, 3});
  return writer;
}

TEST(GgufFileTest, ValuesComeBackAsTheyWereWritten) {
  const Opened opened = OpenGood(AllTypes());
  const GgufFile& file = *opened.file;
  EXPECT_EQ(*file.GetUint("u8"), 200u);
  EXPECT_EQ(*file.GetUint("u32"), 4000000000u);
  EXPECT_EQ(*file.GetUint("u64"), ~uint64_t{0});
  EXPECT_EQ(*file.GetUint("i32"), 7u);
  EXPECT_EQ(*file.GetFloat("f32"), 1.5);
  EXPECT_TRUE(*file.GetBool("yes"));
  EXPECT_EQ(*file.GetString("text"), "caf\xc3\xa9");
  EXPECT_EQ(*file.GetString("empty"), "");
  EXPECT_THAT(*file.GetStrings("strings"), ElementsAre("a", "", "bc"));
  EXPECT_THAT(*file.GetInts("ints"), ElementsAre(3, -4));
  EXPECT_THAT(*file.GetFloats("floats"), ElementsAre(0.5f, -2.0f));
  EXPECT_EQ(*file.GetArrayLength("bytes"), 3u);
}

TEST(GgufFileTest, AMissingKeyIsNotFound) {
  const Opened opened = OpenGood(AllTypes());
  const Status status = opened.file->GetUint("no.such.key").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("no.such.key"));
  EXPECT_FALSE(opened.file->Has("no.such.key"));
}

TEST(GgufFileTest, AWrongTypeIsRefusedWithTheKeysName) {
  const Opened opened = OpenGood(AllTypes());
  const GgufFile& file = *opened.file;
  const std::vector<std::pair<std::string, Status>> wrong = {
      {"minus", file.GetUint("minus").status()},
      {"text", file.GetUint("text").status()},
      {"ints", file.GetUint("ints").status()},
      {"u32", file.GetFloat("u32").status()},
      {"u8", file.GetBool("u8").status()},
      {"u32", file.GetString("u32").status()},
      {"text", file.GetStrings("text").status()},
      {"ints", file.GetStrings("ints").status()},
      {"bytes", file.GetInts("bytes").status()},
      {"bytes", file.GetFloats("bytes").status()},
      {"ints", file.GetFloats("ints").status()},
      {"text", file.GetArrayLength("text").status()}};
  for (const auto& [key, status] : wrong) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << key;
    EXPECT_EQ(status.field(), key);
  }
}

TEST(GgufFileTest, TensorsPointToTheirDataInTheMapping) {
  const std::string path = TempPath("gguf_tensors.gguf");
  ASSERT_TRUE(test::WriteTinyModel({.type = test::TinyType::kQ4_1}, path));
  auto opened = GgufFile::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const GgufFile& file = **opened;
  const GgufTensor* down = file.FindTensor("blk.1.ffn_down.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->ggml_type, 3u);
  EXPECT_THAT(down->dims, ElementsAre(96, 64));
  EXPECT_EQ(down->bytes, 96u / 32 * 20 * 64);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(down->data) % 32, 0u);
  EXPECT_EQ(file.FindTensor("blk.2.ffn_down.weight"), nullptr);
  const std::vector<std::byte> before(down->data, down->data + down->bytes);
  file.ReleasePages();
  EXPECT_EQ(std::memcmp(before.data(), down->data, down->bytes), 0);
}

TEST(GgufFileTest, FilesThatAreNoModelsAreRefusedByBaseName) {
  const std::string path = TempPath("three_bytes.gguf");
  for (const std::string content : {"", "GGU", "GGUF", "PK\x03\x04 not a model at all"}) {
    std::ofstream(path, std::ios::binary) << content;
    const Status status = GgufFile::Open(path).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << content;
    EXPECT_THAT(status.message(), HasSubstr("three_bytes.gguf: "));
    EXPECT_THAT(status.message(), Not(HasSubstr("/")));
  }
}

TEST(GgufFileTest, Version2IsReadAndOthersAreNot) {
  GgufWriter writer = AllTypes();
  std::vector<std::byte> bytes = writer.Finish();
  for (const uint32_t version : {0u, 1u, 2u, 3u, 4u, 0x03000000u, 0xffffffffu}) {
    std::memcpy(bytes.data() + writer.Field("version").offset, &version, sizeof version);
    const auto file = GgufFile::FromBytes("v.gguf", bytes);
    EXPECT_EQ(file.ok(), version == 2 || version == 3) << version;
  }
}

TEST(GgufFileTest, AVocabularyOf300000EntriesLoadsWithoutCopiesOfIt) {
  constexpr size_t kEntries = 300'000;
  const std::string path = TempPath("large_vocabulary.gguf");
  {
    std::vector<std::string> tokens;
    for (size_t i = 0; i < kEntries; ++i) tokens.push_back("token " + std::to_string(i));
    GgufWriter writer;
    writer.AddStrings("tokenizer.ggml.tokens", tokens);
    ASSERT_TRUE(test::WriteFile(path, writer.Finish()));
  }
  test::ResetLargestAllocation();
  const int64_t before = test::AllocationCount();
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const auto tokens = (*file)->GetStrings("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens->size(), kEntries);
  EXPECT_EQ(tokens->back(), "token 299999");
  // One view per entry, and nothing per entry beside it.
  EXPECT_LT(test::AllocationCount() - before, 50);
  EXPECT_LE(test::LargestAllocation(), kEntries * sizeof(std::string_view));
}

}  // namespace
}  // namespace renga
