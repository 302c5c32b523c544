// What a step is refused for: no number that comes from above is trusted.

#include "backend/step_tables.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "tests/backend/tiny_model.h"

namespace renga {
namespace {

// A valid step of two sequences (3 rows from position 62, 1 row from 299), to be broken.
class StepChecks : public testing::Test {
 protected:
  StepChecks()
      : runner_(MakeModel({TensorType::kF32}, TinyShape()), {.threads = 2},
                KvDtype::kF16) {
    sequences_ = {{0, 3, 62, pages_a_}, {3, 1, 299, pages_b_}};
    items_ = runner_.Plan(sequences_, 0);
  }
  Status Begin() {
    return runner_.backend().BeginStep({tokens_, sequences_, logit_rows_}, {items_});
  }
  std::string Field() {
    const Status status = Begin();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    return status.field();
  }

  TinyRunner runner_;
  std::vector<PageId> pages_a_ = {1, 2};
  std::vector<PageId> pages_b_ = {3, 4, 5, 6, 7};
  std::vector<TokenId> tokens_ = {1, 2, 3, 4};
  std::vector<SequenceRows> sequences_;
  std::vector<int32_t> logit_rows_ = {2, 3};
  std::vector<AttendItem> items_;
};

TEST_F(StepChecks, AcceptsAValidStepAndStepsOnlyInsideOne) {
  EXPECT_EQ(runner_.backend().Attend(0).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Begin().ToString(), "OK");
  runner_.Forward({tokens_, sequences_, logit_rows_}, {items_});
  EXPECT_TRUE(runner_.backend().Logits(1).ok());
  EXPECT_FALSE(runner_.backend().Logits(2).ok());
  EXPECT_FALSE(runner_.backend().Logits(-1).ok());
  EXPECT_FALSE(runner_.backend().Attend(2).ok());
  EXPECT_FALSE(runner_.backend().Embed(MatrixId{0}).ok());
  EXPECT_FALSE(runner_.backend().Embed(MatrixId{99}).ok());
  tokens_[0] = -1;
  EXPECT_FALSE(Begin().ok());
  EXPECT_FALSE(runner_.backend().Attend(0).ok());
  EXPECT_FALSE(runner_.backend().Logits(0).ok());
}

TEST_F(StepChecks, RefusesTokensOutsideTheVocabulary) {
  tokens_[2] = 101;
  EXPECT_EQ(Field(), "step.tokens");
  tokens_[2] = -5;
  EXPECT_EQ(Field(), "step.tokens");
  tokens_.clear();
  EXPECT_EQ(Field(), "step.tokens");
}

TEST_F(StepChecks, RefusesRowsThatSequencesDoNotPartition) {
  const std::vector<SequenceRows> good = sequences_;
  for (const auto& change : std::vector<std::function<void(std::vector<SequenceRows>&)>>{
           [](auto& s) { s[1].first_row = 2; }, [](auto& s) { s[0].rows = 0; },
           [](auto& s) { s[1].rows = 2; }, [](auto& s) { s.pop_back(); },
           [](auto& s) { s[1].rows = std::numeric_limits<int32_t>::max(); },
           [](auto& s) { s[0].first_position = -1; },
           [](auto& s) { s[0].first_position = 598; },
           [](auto& s) { s[0].first_position = std::numeric_limits<int32_t>::max(); },
           [](auto& s) { s[0].first_position = 126; }}) {
    sequences_ = good;
    change(sequences_);
    EXPECT_EQ(Field(), "step.sequences");
  }
}

TEST_F(StepChecks, RefusesPagesOutsideThePool) {
  for (const PageId page : {-1, 64, std::numeric_limits<PageId>::max()}) {
    pages_b_[4] = page;
    EXPECT_EQ(Field(), "step.sequences");
  }
}

TEST_F(StepChecks, RefusesLogitRowsThatAreNotAscendingRows) {
  for (const std::vector<int32_t>& rows :
       {std::vector<int32_t>{3, 2}, {1, 1}, {-1}, {4}, {0, 1, 2, 3, 4}}) {
    logit_rows_ = rows;
    EXPECT_EQ(Field(), "step.logit_rows");
  }
}

TEST_F(StepChecks, RefusesPlansThatDoNotCoverEverythingOnce) {
  const std::vector<AttendItem> good = items_;
  for (const auto& change : std::vector<std::function<void(std::vector<AttendItem>&)>>{
           [](auto& i) { i.pop_back(); }, [](auto& i) { i.clear(); },
           [](auto& i) { i.push_back(i[0]); }, [](auto& i) { i[3].first_group = 1; },
           [](auto& i) { i[3].groups = 1; }, [](auto& i) { i[0].rows = 4; },
           [](auto& i) { i[0].kv_head = 2; }, [](auto& i) { i[0].sequence = 2; },
           [](auto& i) { i[0].first_row = -1; }, [](auto& i) { i[0].groups = 0; },
           [](auto& i) { i[0].first_group = -1; }}) {
    items_ = good;
    change(items_);
    EXPECT_EQ(Field(), "plan");
  }
}

TEST_F(StepChecks, SampleRefusesRowsThatWereNotComputed) {
  runner_.Forward({tokens_, sequences_, logit_rows_}, {items_});
  std::vector<SampleResult> results(1);
  std::vector<SampleSpec> specs(1);
  specs[0].logit_row = 2;
  EXPECT_EQ(runner_.backend().Sample(specs, results).field(), "logit_row");
  specs[0].logit_row = -1;
  EXPECT_EQ(runner_.backend().Sample(specs, results).field(), "logit_row");
  specs.resize(2);
  EXPECT_EQ(runner_.backend().Sample(specs, results).field(), "results");
}

// ---- Own chunks ----------------------------------------------------------------------

class OwnChunksTest : public testing::Test {
 protected:
  static constexpr BackendLimits kLimits{
      .max_rows = 300, .max_logit_rows = 8, .max_sequences = 5, .max_pages = 64};

  OwnChunksTest() {
    for (PageId page = 0; page < 50; ++page) pages_.push_back(page);
  }
  // Sequences of so many rows from such positions, in one step.
  Status Build(const std::vector<std::pair<int32_t, int32_t>>& from_and_rows) {
    sequences_.clear();
    items_.clear();
    int32_t row = 0;
    for (const auto& [from, rows] : from_and_rows) {
      const int32_t index = static_cast<int32_t>(sequences_.size());
      sequences_.push_back({.first_row = row,
                            .rows = rows,
                            .first_position = from,
                            .pages = std::span(pages_).subspan(sequences_.size()),
                            .open_page = open_page_ < 0 ? index : open_page_});
      for (int32_t head = 0; head < 2; ++head) {
        items_.push_back({index, head, row, rows, 0, 3});
      }
      row += rows;
    }
    tokens_.assign(static_cast<size_t>(row), 1);
    return tables_.Build({tokens_, sequences_, {}}, {items_});
  }

  StepTables tables_{{.shape = TinyShape(),
                      .backend = kLimits,
                      .pages = 64,
                      .partial_rows = 8,
                      .threads = 1,
                      .open_pages = true}};
  std::vector<PageId> pages_;
  PageId open_page_ = -1;
  std::vector<TokenId> tokens_;
  std::vector<SequenceRows> sequences_;
  std::vector<AttendItem> items_;
};

TEST_F(OwnChunksTest, TheFirstIsTheOpenPageAndTheLaterOnesAreScratch) {
  ASSERT_EQ(Build({{60, 1}, {62, 70}, {63, 1}, {0, 64}}).ToString(), "OK");
  const auto& chunks = tables_.own_chunks();
  ASSERT_EQ(chunks.size(), 6u);
  const int32_t scratch[] = {-1, -1, 0, 1, -1, -1};
  const int32_t tokens[] = {61, 64, 64, 4, 64, 64};
  const PageId open_pages[] = {0, 1, 1, 1, 2, 3};
  const PageId pages[] = {0, 1, 2, 3, 2, 3};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(chunks[i].scratch, scratch[i]) << i;
    EXPECT_EQ(chunks[i].tokens, tokens[i]) << i;
    EXPECT_EQ(chunks[i].open_page, open_pages[i]) << i;
    EXPECT_EQ(chunks[i].page, pages[i]) << i;
  }
  EXPECT_EQ(tables_.whole_chunks(), (std::vector<int32_t>{1, 2, 4, 5}));
  EXPECT_EQ(tables_.moved_chunks(), (std::vector<int32_t>{3}));
  EXPECT_EQ(tables_.own_chunk_of(0), 0);
  EXPECT_EQ(tables_.own_chunk_of(1), 1);   // Position 62.
  EXPECT_EQ(tables_.own_chunk_of(3), 2);   // Position 64.
  EXPECT_EQ(tables_.own_chunk_of(70), 3);  // Position 131.
  EXPECT_EQ(tables_.own_chunk_of(71), 4);
  EXPECT_EQ(tables_.own_chunk_of(72), 5);
}

TEST_F(OwnChunksTest, ThereAreNeverMoreThanTheBound) {
  // Every sequence crosses as many borders as its rows can.
  const int32_t most_rows = kLimits.max_rows - 4 * 2;
  ASSERT_EQ(Build({{63, 2}, {63, 2}, {63, 2}, {63, 2}, {63, most_rows}}).ToString(),
            "OK");
  int64_t scratch = 0;
  for (const auto& chunk : tables_.own_chunks()) scratch += chunk.scratch >= 0 ? 1 : 0;
  EXPECT_EQ(scratch, StepTables::MaxScratchChunks(kLimits));
  EXPECT_EQ(static_cast<int64_t>(tables_.own_chunks().size()),
            StepTables::MaxOwnChunks(kLimits));
}

TEST_F(OwnChunksTest, AnOpenPageOutsideThePoolIsRefused) {
  for (const PageId page : {kLimits.max_sequences, std::numeric_limits<PageId>::max()}) {
    open_page_ = page;
    EXPECT_EQ(Build({{0, 3}}).field(), "step.sequences");
  }
  sequences_ = {{.first_row = 0, .rows = 1, .first_position = 0, .pages = pages_}};
  tokens_ = {1};
  items_ = {{0, 0, 0, 1, 0, 1}, {0, 1, 0, 1, 0, 1}};
  EXPECT_EQ(tables_.Build({tokens_, sequences_, {}}, {items_}).field(), "step.sequences");
}

}  // namespace
}  // namespace renga
