// A small good file, damaged one field at a time: every damage is refused with a message
// that names what is wrong, no byte outside the file is read (the bytes end at a page
// that may not be touched), and no allocation is larger than the file justifies.

#include "formats/gguf_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "formats/gguf_file.h"
#include "tests/models/allocation_meter.h"
#include "tests/models/gguf_writer.h"

namespace renga {
namespace {

using test::GgufField;
using test::GgufWriter;
using testing::HasSubstr;

constexpr size_t kSlack = 64 << 10;  // Messages, hash tables of a handful of keys.
constexpr uint64_t kHuge[] = {uint64_t{1} << 31, uint64_t{1} << 63,
                              std::numeric_limits<uint64_t>::max()};

// Bytes that end exactly where an inaccessible page begins.
class GuardedBytes {
 public:
  explicit GuardedBytes(const std::vector<std::byte>& bytes) : size_(bytes.size()) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t body = (size_ + page - 1) / page * page;
    mapped_ = body + page;
    base_ = static_cast<std::byte*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + body, page, PROT_NONE);
    data_ = base_ + body - size_;
    if (size_ > 0) std::memcpy(data_, bytes.data(), size_);
  }
  ~GuardedBytes() { munmap(base_, mapped_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  size_t mapped_ = 0;
  size_t size_ = 0;
};

GgufWriter GoodWriter() {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.AddUint32("general.alignment", 32);
  writer.AddUint32("number", 5);
  writer.AddStrings("words", {"one", "two", "three"});
  writer.AddInts("ints", {1, 2, 3});
  writer.AddFloats("floats", {1.0f});
  writer.AddTensor("first", 0, {8, 4}, std::vector<std::byte>(128));
  writer.AddTensor("second", 3, {64, 2}, std::vector<std::byte>(80));
  return writer;
}

Status Parse(const std::vector<std::byte>& bytes) {
  const GuardedBytes guarded(bytes);
  return GgufFile::FromBytes("x.gguf", guarded.bytes()).status();
}

// A good file of which one field holds `value` (its lowest bytes).
std::vector<std::byte> WithField(const std::string& field, uint64_t value) {
  GgufWriter writer = GoodWriter();
  std::vector<std::byte> bytes = writer.Finish();
  const GgufField& place = writer.Field(field);
  std::memcpy(bytes.data() + place.offset, &value, std::min<size_t>(place.bytes, 8));
  return bytes;
}

// Refused, with `needle` in the message and no large allocation on the way.
void ExpectRefused(const std::vector<std::byte>& bytes, const std::string& needle) {
  const GuardedBytes guarded(bytes);
  test::ResetLargestAllocation();
  const Status status = GgufFile::FromBytes("x.gguf", guarded.bytes()).status();
  const size_t largest = test::LargestAllocation();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << needle;
  EXPECT_THAT(status.message(), HasSubstr("x.gguf: "));
  EXPECT_THAT(status.message(), HasSubstr(needle));
  EXPECT_LE(largest, bytes.size() + kSlack) << needle;
}

TEST(GgufParserTest, TheGoodFileOpens) { EXPECT_TRUE(Parse(GoodWriter().Finish()).ok()); }

TEST(GgufParserTest, AFileCutAtAnyByteIsRefused) {
  const std::vector<std::byte> good = GoodWriter().Finish();
  for (size_t size = 0; size < good.size(); ++size) {
    const Status status =
        Parse({good.begin(), good.begin() + static_cast<int64_t>(size)});
    ASSERT_EQ(status.code(), StatusCode::kInvalidArgument) << "cut at " << size;
  }
}

TEST(GgufParserTest, ACutInsideTheDataNamesTensorOffsetAndSizes) {
  std::vector<std::byte> bytes = GoodWriter().Finish();
  bytes.pop_back();
  const Status status = Parse(bytes);
  EXPECT_THAT(status.message(), HasSubstr("tensor second"));
  EXPECT_THAT(status.message(), HasSubstr("offset 128"));
  EXPECT_THAT(status.message(), HasSubstr("size 80"));
  EXPECT_THAT(status.message(), HasSubstr("file size " + std::to_string(bytes.size())));
}

TEST(GgufParserTest, CountsAreNotBelieved) {
  for (const uint64_t huge : kHuge) {
    ExpectRefused(WithField("tensor_count", huge), "tensors");
    ExpectRefused(WithField("key_count", huge), "keys");
    ExpectRefused(WithField("key:words:count", huge), "key words");
    ExpectRefused(WithField("key:ints:count", huge), "key ints");
    ExpectRefused(WithField("key:floats:count", huge), "key floats");
  }
  ExpectRefused(WithField("tensor_count", 3), "");
  ExpectRefused(WithField("key_count", 0), "");
  ExpectRefused(WithField("key_count", 7), "");
}

TEST(GgufParserTest, LengthsAreNotBelieved) {
  for (const uint64_t huge : kHuge) {
    ExpectRefused(WithField("key:number:name:length", huge), "key number 2");
    ExpectRefused(WithField("key:general.architecture:value", huge),
                  "key general.architecture");
    ExpectRefused(WithField("key:words:value", huge), "key words");
    ExpectRefused(WithField("tensor:first:name:length", huge), "tensor number 0");
  }
  ExpectRefused(WithField("key:number:name:length", 0), "key number 2");
  ExpectRefused(WithField("tensor:first:name:length", 0), "tensor number 0");
  ExpectRefused(WithField("tensor:first:name:length", 65), "tensor number 0");
}

TEST(GgufParserTest, TypesThatDoNotExistAreRefused) {
  for (const uint64_t type : {uint64_t{13}, uint64_t{255}, uint64_t{0xffffffff}}) {
    ExpectRefused(WithField("key:number:type", type), "key number");
    ExpectRefused(WithField("key:ints:element_type", type), "key ints");
    ExpectRefused(WithField("tensor:first:type", type + 100), "tensor first");
  }
  ExpectRefused(WithField("tensor:first:type", 4), "tensor first");  // A removed one.
}

TEST(GgufParserTest, ArraysOfArraysAreRefusedHoweverDeep) {
  ExpectRefused(WithField("key:ints:element_type", 9), "arrays of arrays");
  // Key 0 is an array that holds an array that holds ... 200,000 times.
  std::string deep = "GGUF";
  const auto put = [&deep](auto value) {
    deep.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  put(uint32_t{3});
  put(uint64_t{0});
  put(uint64_t{1});
  put(uint64_t{1});
  deep += 'k';
  put(uint32_t{9});
  for (int i = 0; i < 200'000; ++i) {
    put(uint32_t{9});
    put(uint64_t{1});
  }
  const auto* raw = reinterpret_cast<const std::byte*>(deep.data());
  ExpectRefused({raw, raw + deep.size()}, "arrays of arrays");
}

TEST(GgufParserTest, DimensionsAreChecked) {
  for (const uint64_t count : {uint64_t{0}, uint64_t{5}, uint64_t{0xffffffff}}) {
    ExpectRefused(WithField("tensor:first:dimensions", count), "tensor first");
  }
  for (const uint64_t dim : {uint64_t{0}, uint64_t{1} << 31, uint64_t{1} << 62,
                             uint64_t{1} << 63, ~uint64_t{0}}) {
    ExpectRefused(WithField("tensor:first:dim0", dim), "tensor first");
    ExpectRefused(WithField("tensor:first:dim1", dim), "tensor first");
    ExpectRefused(WithField("tensor:second:dim1", dim), "tensor second");
  }
  ExpectRefused(WithField("tensor:second:dim0", 63), "no whole blocks of Q4_1");
}

TEST(GgufParserTest, AProductOfDimensionsThatWrapsToZeroIsRefused) {
  GgufWriter writer = GoodWriter();
  writer.AddTensor("wrap", 0, {uint64_t{1} << 32, uint64_t{1} << 32}, {});
  ExpectRefused(writer.Finish(), "tensor wrap: the product");
  GgufWriter bytes_wrap = GoodWriter();
  bytes_wrap.AddTensor("wrap", 0, {uint64_t{1} << 31, uint64_t{1} << 31}, {});
  ExpectRefused(bytes_wrap.Finish(), "tensor wrap: the product");
}

TEST(GgufParserTest, OffsetsOutsideTheFileAreRefused) {
  const auto size = static_cast<uint64_t>(GoodWriter().Finish().size());
  const uint64_t max = std::numeric_limits<uint64_t>::max();
  // The last two make offset + size and start + offset + size wrap round 2^64.
  for (const uint64_t offset :
       {size / 32 * 32, uint64_t{1} << 40, uint64_t{1} << 63, max - 127, max - 31}) {
    ExpectRefused(WithField("tensor:first:offset", offset), "tensor first lies outside");
  }
  ExpectRefused(WithField("tensor:first:offset", 8), "multiple of the alignment");
}

TEST(GgufParserTest, TheAlignmentMustBeASanePowerOfTwo) {
  for (const uint64_t alignment :
       {uint64_t{0}, uint64_t{1}, uint64_t{4}, uint64_t{24}, uint64_t{0x80000000}}) {
    ExpectRefused(WithField("key:general.alignment:value", alignment),
                  "general.alignment");
  }
  // 5: int32 instead of uint32.
  ExpectRefused(WithField("key:general.alignment:type", 5), "general.alignment");
}

TEST(GgufParserTest, NamesThatComeTwiceAreRefused) {
  GgufWriter keys = GoodWriter();
  keys.AddUint32("number", 6);
  ExpectRefused(keys.Finish(), "key number comes twice");
  GgufWriter tensors = GoodWriter();
  tensors.AddTensor("first", 0, {1}, std::vector<std::byte>(4));
  ExpectRefused(tensors.Finish(), "tensor first comes twice");
}

TEST(GgufParserTest, NamesInMessagesArePrintable) {
  GgufWriter writer = GoodWriter();
  writer.AddTensor("bad\n\x1b[31m\xff", 99, {1}, std::vector<std::byte>(4));
  ExpectRefused(writer.Finish(), "tensor bad??[31m?");
}

// Any four bytes of the head set to all zeros, all ones or the sign bit: no crash, and
// whatever still opens stays inside the file.
TEST(GgufParserTest, EveryWordOfTheHeadMayHoldAnything) {
  const std::vector<std::byte> good = GoodWriter().Finish();
  int64_t opened = 0;
  for (size_t at = 0; at + 4 <= good.size(); ++at) {
    for (const uint32_t word : {0u, 0xffffffffu, 0x80000000u, 9u}) {
      std::vector<std::byte> bytes = good;
      std::memcpy(bytes.data() + at, &word, sizeof word);
      const GuardedBytes guarded(bytes);
      test::ResetLargestAllocation();
      const auto file = GgufFile::FromBytes("x.gguf", guarded.bytes());
      ASSERT_LE(test::LargestAllocation(), bytes.size() + kSlack) << at;
      if (!file.ok()) continue;
      ++opened;
      const std::byte* end = guarded.bytes().data() + guarded.bytes().size();
      for (const GgufTensor& tensor : (*file)->tensors()) {
        ASSERT_GE(tensor.data, guarded.bytes().data());
        ASSERT_LE(tensor.bytes, static_cast<size_t>(end - tensor.data)) << at;
      }
    }
  }
  EXPECT_GT(opened, 0);  // Words inside tensor data and values change nothing.
}

}  // namespace
}  // namespace renga
