// int8 pages in the backend: what a query reads is a function of positions alone, however
// a sequence was sliced, and pages travel.

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <utility>

#include "tests/backend/tiny_model.h"

namespace renga {
namespace {

constexpr int32_t kTokens = 330;

class Int8PagesTest : public testing::Test {
 protected:
  const TinyModel model_ = MakeModel({TensorType::kQ8_0, TensorType::kF32}, TinyShape());

  std::unique_ptr<TinyRunner> Runner(const std::string& isa = "auto", int threads = 1) {
    return std::make_unique<TinyRunner>(
        model_, CpuBackendOptions{.isa = isa, .threads = threads}, KvDtype::kInt8);
  }
  // The logits of the last row of each slice.
  static std::vector<std::vector<float>> Compute(TinyRunner& runner, TinySequence& s,
                                                 int32_t slice, int32_t end) {
    std::vector<std::vector<float>> logits;
    while (s.done < end) {
      logits.push_back(runner.Step({&s}, {std::min(slice, end - s.done)})[0]);
    }
    return logits;
  }
  static std::vector<std::byte> Bytes(TinyRunner& runner, PageId page) {
    std::vector<std::byte> bytes(static_cast<size_t>(runner.backend().page_bytes()));
    EXPECT_TRUE(runner.backend().ReadPage(page, bytes).ok());
    return bytes;
  }
  static void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b,
                             const std::string& what) {
    ASSERT_EQ(a.size(), b.size());
    ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
  }
};

TEST_F(Int8PagesTest, SlicesOfAnySizeGiveTheSameLogitsAndPages) {
  const auto one = Runner("portable");
  TinySequence s = MakeSequence(kTokens, 1, one->free_pages);
  const auto expected = Compute(*one, s, 1, kTokens);
  for (const char* isa : {"portable", "auto"}) {
    for (const int32_t slice : {63, 64, 65, 127, 128, 129, 200, kTokens}) {
      const auto runner = Runner(isa, 1 + slice % 2);
      TinySequence t = MakeSequence(kTokens, 1, runner->free_pages);
      const auto got = Compute(*runner, t, slice, kTokens);
      int32_t end = 0;
      for (const std::vector<float>& logits : got) {
        end = std::min(end + slice, kTokens);
        ExpectSameBits(logits, expected[static_cast<size_t>(end - 1)],
                       std::string(isa) + ", slices of " + std::to_string(slice) +
                           ", position " + std::to_string(end - 1));
      }
      for (size_t page = 0; page < static_cast<size_t>(kTokens / kPageTokens); ++page) {
        EXPECT_EQ(Bytes(*runner, t.pages[page]), Bytes(*one, s.pages[page])) << page;
      }
    }
  }
}

TEST_F(Int8PagesTest, TheOwnChunkIsReadInF16AndEarlierOnesFromTheirPages) {
  const auto expected = [&] {
    const auto runner = Runner();
    TinySequence s = MakeSequence(128, 1, runner->free_pages);
    return Compute(*runner, s, 1, 128);
  }();
  const auto runner = Runner();
  TinySequence s = MakeSequence(128, 1, runner->free_pages);
  Compute(*runner, s, 64, 64);
  const std::vector<std::byte> noise(static_cast<size_t>(runner->backend().page_bytes()),
                                     std::byte{0x35});
  // The page of the chunk in progress is neither read nor written.
  ASSERT_TRUE(runner->backend().WritePage(s.pages[1], noise).ok());
  const auto got = Compute(*runner, s, 21, 127);
  for (size_t i = 0; i < 3; ++i) {
    ExpectSameBits(got[i], expected[64 + 21 * (i + 1) - 1], "slice " + std::to_string(i));
  }
  EXPECT_EQ(Bytes(*runner, s.pages[1]), noise);
  // That of an earlier one is all that is read of it.
  ASSERT_TRUE(runner->backend().WritePage(s.pages[0], noise).ok());
  const auto other = Compute(*runner, s, 1, 128);
  EXPECT_NE(std::memcmp(other[0].data(), expected[127].data(), other[0].size() * 4), 0);
  EXPECT_NE(Bytes(*runner, s.pages[1]), noise) << "written when it is whole";
}

TEST_F(Int8PagesTest, PagesThatLeaveAndComeBackGiveTheSameBits) {
  const auto first = Runner();
  TinySequence s = MakeSequence(200, 1, first->free_pages);
  const auto expected = Compute(*first, s, 200, 200);
  const auto second = Runner("portable", 2);
  second->free_pages.resize(40);  // Other pages.
  TinySequence t = MakeSequence(200, 1, second->free_pages);
  ASSERT_NE(t.pages, s.pages);
  for (size_t page = 0; page < 3; ++page) {
    ASSERT_TRUE(
        second->backend().WritePage(t.pages[page], Bytes(*first, s.pages[page])).ok());
  }
  t.done = 192;
  ExpectSameBits(Compute(*second, t, 8, 200)[0], expected[0], "restored");
}

TEST_F(Int8PagesTest, ACopiedOpenPageContinuesLikeItsSource) {
  for (const int32_t tokens : {1, 17, 63}) {
    const auto runner = Runner();
    TinySequence s = MakeSequence(200, 1, runner->free_pages);
    Compute(*runner, s, 200, 64 + tokens);
    TinySequence copy = s;
    copy.pages = MakeSequence(200, 1, runner->free_pages).pages;
    copy.pages[0] = s.pages[0];
    copy.open_page = TinyRunner::kSequences - 1;
    ASSERT_TRUE(runner->backend().CopyPageHead(s.open_page, copy.open_page, tokens).ok());
    const auto expected = Compute(*runner, s, 50, 200);
    const auto got = Compute(*runner, copy, 50, 200);
    for (size_t i = 0; i < got.size(); ++i) {
      ExpectSameBits(got[i], expected[i], std::to_string(tokens));
    }
  }
}

TEST_F(Int8PagesTest, AnyBytesInAPageGiveSomeNumbers) {
  std::mt19937 random(3);
  const auto runner = Runner("auto", 2);
  for (int round = 0; round < 12; ++round) {
    TinySequence s = MakeSequence(200, 1, runner->free_pages);
    s.open_page = 0;
    std::vector<std::byte> bytes(static_cast<size_t>(runner->backend().page_bytes()));
    for (size_t page = 0; page < 3; ++page) {
      for (std::byte& byte : bytes) {
        byte = round < 2 ? std::byte{static_cast<uint8_t>(round == 0 ? 0xff : 0x7f)}
                         : static_cast<std::byte>(random());
      }
      ASSERT_TRUE(runner->backend().WritePage(s.pages[page], bytes).ok());
    }
    s.done = 192;
    const auto logits = Compute(*runner, s, 4, 200);
    EXPECT_EQ(logits.back().size(), 101u);
    const SampleSpec spec{.logit_row = 0};
    SampleResult result;
    ASSERT_TRUE(runner->backend().Sample({&spec, 1}, {&result, 1}).ok());
    EXPECT_TRUE(!result.finite || (result.token >= 0 && result.token < 101));
    runner->free_pages.insert(runner->free_pages.end(), s.pages.begin(), s.pages.end());
  }
}

}  // namespace
}  // namespace renga
