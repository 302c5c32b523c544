#include "formats/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "tests/models/temporary_folder.h"

namespace renga {
namespace {

using testing::ElementsAre;

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(OutputFile, TheNameAppearsOnlyWithTheWholeContent) {
  const test::TemporaryFolder folder;
  auto file = OutputFile::Create(folder / "out", false);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_TRUE(file->Reserve(7).ok());
  ASSERT_TRUE(file->Write(AsBytes("one ")).ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  ASSERT_TRUE(file->Write(AsBytes("two")).ok());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(Content(folder / "out"), "one two");
  EXPECT_THAT(folder.Names(), ElementsAre("out"));
}

TEST(OutputFile, WithoutCommitNothingIsLeft) {
  const test::TemporaryFolder folder;
  {
    auto file = OutputFile::Create(folder / "out", false);
    ASSERT_TRUE(file->Write(AsBytes("half")).ok());
    const OutputFile moved =
        std::move(*file);  // The one that it was moved to removes it.
    EXPECT_EQ(folder.Names().size(), 1u);
  }
  EXPECT_TRUE(folder.Names().empty());
}

TEST(OutputFile, AnExistingFileIsReplacedOnlyWhenAsked) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "out") << "old";
  EXPECT_EQ(OutputFile::Create(folder / "out", false).status().code(),
            StatusCode::kAlreadyExists);
  auto file = OutputFile::Create(folder / "out", true);
  ASSERT_TRUE(file->Write(AsBytes("new")).ok());
  EXPECT_EQ(Content(folder / "out"), "old");
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(Content(folder / "out"), "new");
}

TEST(OutputFile, AFileThatAppearedMeanwhileIsNotReplaced) {
  const test::TemporaryFolder folder;
  {
    auto file = OutputFile::Create(folder / "out", false);
    ASSERT_TRUE(file->Write(AsBytes("mine")).ok());
    std::ofstream(folder / "out") << "theirs";
    EXPECT_EQ(file->Commit().code(), StatusCode::kAlreadyExists);
  }
  EXPECT_EQ(Content(folder / "out"), "theirs");
  EXPECT_THAT(folder.Names(), ElementsAre("out"));
}

TEST(OutputFile, PathsThatCannotBeFilesAreRefused) {
  const test::TemporaryFolder folder;
  EXPECT_FALSE(OutputFile::Create("", true).ok());
  EXPECT_FALSE(OutputFile::Create(folder.path(), true).ok()) << "a folder";
  EXPECT_FALSE(OutputFile::Create(folder.path() + "/", true).ok());
  EXPECT_FALSE(OutputFile::Create("/dev/null", true).ok());
  EXPECT_EQ(OutputFile::Create(folder / "no/such/folder", true).status().code(),
            StatusCode::kNotFound);
}

TEST(OutputFile, MoreSpaceThanThereIsIsRefusedBeforeAnythingIsWritten) {
  const test::TemporaryFolder folder;
  auto file = OutputFile::Create(folder / "out", false);
  const Status status = file->Reserve(std::numeric_limits<int64_t>::max() / 2);
  // Some file systems cannot be asked.
  if (!status.ok()) {
    EXPECT_NE(status.message().find("out: cannot take"), std::string::npos);
  }
}

// No file of this process may grow beyond `bytes` while this lives; a write that would is
// an error, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(OutputFile, WhatCannotBeWrittenIsAnErrorAndLeavesNothing) {
  const test::TemporaryFolder folder;
  const FileSizeLimit limit(4096);
  {
    auto file = OutputFile::Create(folder / "out", false);
    const std::string much(100000, 'x');
    const Status status = file->Write(AsBytes(much));
    EXPECT_NE(status.message().find("out: cannot write"), std::string::npos)
        << status.ToString();
    EXPECT_FALSE(file->Reserve(100000).ok());
  }
  EXPECT_TRUE(folder.Names().empty());
}

TEST(OutputFile, TwoNamesOfOneFileAreTheSame) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "a") << "x";
  std::ofstream(folder / "b") << "x";
  std::filesystem::create_symlink(folder / "a", folder / "link");
  EXPECT_TRUE(SameFile(folder / "a", folder / "link"));
  EXPECT_FALSE(SameFile(folder / "a", folder / "b"));
  EXPECT_FALSE(SameFile(folder / "a", folder / "none"));
}

}  // namespace
}  // namespace renga
