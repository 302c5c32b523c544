#include "formats/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <utility>

namespace renga {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string TempFile(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string Text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFileTest, BytesAreThoseOfTheFileAlsoAfterAReleaseAndAMove) {
  auto file = MappedFile::Open(TempFile("mapped_file", "some bytes"));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(Text(*file), "some bytes");
  file->ReleasePages();
  EXPECT_EQ(Text(*file), "some bytes");
  MappedFile moved = std::move(*file);
  EXPECT_EQ(Text(moved), "some bytes");
}

TEST(MappedFileTest, AnEmptyFileHasNoBytes) {
  const auto file = MappedFile::Open(TempFile("mapped_empty", ""));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_TRUE(file->bytes().empty());
  file->ReleasePages();
}

TEST(MappedFileTest, WhatCannotBeMappedIsRefusedByBaseName) {
  const Status missing = MappedFile::Open(testing::TempDir() + "no_such_file").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("no_such_file: "));
  EXPECT_THAT(missing.message(), Not(HasSubstr("/")));
  EXPECT_EQ(MappedFile::Open(testing::TempDir()).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_FALSE(MappedFile::Open("").ok());
}

// A pipe that nobody writes to must not hold up the start.
TEST(MappedFileTest, APipeIsRefusedAtOnce) {
  const std::string path = testing::TempDir() + "mapped_pipe";
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(path).status().code(), StatusCode::kFailedPrecondition);
  unlink(path.c_str());
}

}  // namespace
}  // namespace renga
