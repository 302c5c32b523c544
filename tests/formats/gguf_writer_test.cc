// Files written by GgufWriter, read by the checked reader.

#include "formats/gguf_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "formats/ggml_type.h"
#include "tests/models/gguf_writer.h"
#include "tests/models/temporary_folder.h"

namespace renga {
namespace {

// One key of each kind, and an alignment of its own.
std::vector<std::byte> Source() {
  test::GgufWriter writer;
  writer.AddUint32("z.first", 7);
  writer.AddUint32("general.alignment", 64);
  writer.AddInt32("a.int32", -7);
  writer.AddUint8("a.uint8", 255);
  writer.AddUint64("a.uint64", uint64_t{1} << 40);
  writer.AddFloat32("a.float", 1.5f);
  writer.AddBool("a.bool", true);
  writer.AddString("a.string", "text");
  writer.AddStrings("a.strings", {"one", "", "three"});
  writer.AddInts("a.ints", {1, -2});
  writer.AddFloats("a.none", {});
  writer.AddBytes("a.bytes", {9, 8, 7});
  return writer.Finish();
}

class GgufWriterTest : public testing::Test {
 protected:
  GgufWriterTest() : bytes_(Source()), source_(*GgufFile::FromBytes("source", bytes_)) {}

  const std::vector<std::byte> bytes_;
  const std::unique_ptr<GgufFile> source_;
  const test::TemporaryFolder folder_;
  const std::string path_ = folder_ / "out.gguf";
};

TEST_F(GgufWriterTest, KeysKeepTheirValuesAndTheirOrder) {
  constexpr std::string_view kWithout[] = {"a.uint8", "not.there"};
  GgufWriter writer;
  writer.CopyKeys(*source_, kWithout);
  writer.AddUint32("new", 3);
  OutputFile out = *OutputFile::Create(path_, false);
  ASSERT_TRUE(writer.Begin(out).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const auto file = GgufFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_FALSE((*file)->Has("a.uint8"));
  EXPECT_EQ((*file)->Keys().size(), source_->Keys().size());
  EXPECT_EQ(*(*file)->GetUint("new"), 3u);
  EXPECT_EQ(*(*file)->GetStrings("a.strings"), *source_->GetStrings("a.strings"));
  EXPECT_EQ(*(*file)->GetInts("a.ints"), *source_->GetInts("a.ints"));
  EXPECT_EQ(*(*file)->GetArrayLength("a.none"), 0u);
  EXPECT_EQ(*(*file)->GetFloat("a.float"), 1.5);
  EXPECT_EQ(*(*file)->GetBool("a.bool"), true);
  EXPECT_EQ(*(*file)->GetString("a.string"), "text");
  EXPECT_EQ(*(*file)->GetUint("a.uint64"), uint64_t{1} << 40);
  EXPECT_EQ(std::memcmp((*file)->FindValue("a.bytes")->data, "\x9\x8\x7", 3), 0);
  EXPECT_LT((*file)->FindValue("z.first")->data, (*file)->FindValue("a.int32")->data);
}

TEST_F(GgufWriterTest, TensorsLieWhereTheHeaderSaysInPiecesOfAnySize) {
  GgufWriter writer;
  writer.CopyKeys(*source_, {});
  writer.AddTensor("a", kGgmlF32, {3, 5});    // 60 bytes: padding follows.
  writer.AddTensor("b", kGgmlQ8_0, {32, 4});  // 136
  writer.AddTensor("c", kGgmlF16, {32, 2, 1});
  std::vector<std::byte> data(60 + 136 + 128);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  OutputFile out = *OutputFile::Create(path_, false);
  ASSERT_TRUE(writer.Begin(out).ok());
  const std::span<const std::byte> all = data;
  ASSERT_TRUE(writer.Write(all.first(1)).ok());
  ASSERT_TRUE(writer.Write(all.subspan(1, 59)).ok());
  ASSERT_TRUE(writer.Write(all.subspan(60, 136)).ok());
  ASSERT_TRUE(writer.Write(all.subspan(196)).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const auto file = GgufFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  size_t offset = 0;
  for (const GgufTensor& tensor : (*file)->tensors()) {
    EXPECT_EQ(std::memcmp(tensor.data, data.data() + offset, tensor.bytes), 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % 64, 0u) << "its alignment";
    offset += tensor.bytes;
  }
  EXPECT_EQ(offset, data.size());
  EXPECT_EQ((*file)->FindTensor("c")->dims, (std::vector<int64_t>{32, 2, 1}));
  EXPECT_EQ(static_cast<int64_t>(std::filesystem::file_size(path_)), writer.FileBytes());
}

}  // namespace
}  // namespace renga
