// What a step is refused for: no number that comes from above is trusted.

#include <gtest/gtest.h>

#include <functional>

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

}  // namespace
}  // namespace renga
