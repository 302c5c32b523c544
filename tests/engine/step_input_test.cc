// StepInput: rows, logit rows and specs of a step, and whose results are whose.

#include "engine/step_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/request_group.h"

namespace renga {
namespace {

using testing::ElementsAre;

constexpr BackendLimits kLimits{
    .max_rows = 100, .max_logit_rows = 8, .max_sequences = 6, .max_pages = 10};

std::unique_ptr<RequestGroup> Group(std::vector<TokenId> prompt, int32_t n = 1,
                                    int32_t prompt_logprobs = -1) {
  EngineRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = 5;
  request.n = n;
  request.prompt_logprobs = prompt_logprobs;
  auto group = std::make_unique<RequestGroup>(std::move(request), 1, TimePoint{});
  group->Reserve();
  return group;
}

TEST(StepInputTest, RowsStandInOrderAndOnlyTheSampledOnesHaveLogits) {
  StepInput input(kLimits);
  const auto decoding = Group({1, 2}), prompt = Group({3, 4, 5, 6});
  decoding->NoteForked();
  decoding->first().Advance(2);
  decoding->first().Append(9);
  input.Clear();
  input.Add(decoding->first(), 1, true, true);
  input.Add(prompt->first(), 3, false, false);
  input.Finish();
  const StepBatch batch = input.batch();
  EXPECT_THAT(batch.tokens, ElementsAre(9, 3, 4, 5));
  EXPECT_THAT(batch.logit_rows, ElementsAre(0));
  ASSERT_EQ(batch.sequences.size(), 2u);
  EXPECT_EQ(batch.sequences[0].first_position, 2);
  EXPECT_EQ(batch.sequences[1].first_row, 1);
  EXPECT_EQ(batch.sequences[1].rows, 3);
  ASSERT_EQ(input.specs().size(), 1u);
  EXPECT_EQ(input.specs()[0].token_index, 1u);
  EXPECT_EQ(input.draws_of(input.entries()[1]).size(), 0u);
}

TEST(StepInputTest, TheShapeCountsWhatEachRowMaySee) {
  StepInput input(kLimits);
  const auto group = Group({1, 2, 3, 4, 5});
  group->first().Advance(2);
  input.Clear();
  input.Add(group->first(), 3, true, false);
  input.Finish();
  EXPECT_EQ(input.shape().rows, 3);
  EXPECT_EQ(input.shape().logit_rows, 1);
  EXPECT_EQ(input.shape().attended, 3 + 4 + 5);
}

TEST(StepInputTest, ScoresComeBeforeTheDrawAndOfTheLastTokenOnlyTheDraw) {
  StepInput input(kLimits);
  const auto group = Group({1, 2, 3, 4}, 1, 0);
  const auto after = Group({7});
  input.Clear();
  input.Add(group->first(), 4, true, false);
  input.Add(after->first(), 1, true, false);
  input.Finish();
  EXPECT_THAT(input.batch().logit_rows, ElementsAre(0, 1, 2, 3, 4));
  ASSERT_EQ(input.specs().size(), 5u);
  EXPECT_EQ(input.specs()[0].given, 2);
  EXPECT_EQ(input.specs()[2].given, 4);
  EXPECT_EQ(input.specs()[3].given, -1);
  EXPECT_EQ(input.scores_of(input.entries()[0]).size(), 3u);
  EXPECT_EQ(input.draws_of(input.entries()[0]).size(), 1u);
  EXPECT_EQ(&input.draws_of(input.entries()[1])[0], &input.results()[4]);
}

TEST(StepInputTest, OneRowStandsForAllChoicesUntilTheyAreForked) {
  StepInput input(kLimits);
  const auto group = Group({1, 2}, 4);
  input.Clear();
  input.Add(group->first(), 2, true, false);
  input.Finish();
  EXPECT_THAT(input.batch().logit_rows, ElementsAre(1));
  ASSERT_EQ(input.specs().size(), 4u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(input.specs()[i].logit_row, 0);
    EXPECT_EQ(input.specs()[i].choice, i);
  }
  group->NoteForked();
  group->first().Advance(2);
  group->first().Append(3);
  input.Clear();
  input.Add(group->first(), 1, true, true);
  input.Finish();
  EXPECT_EQ(input.specs().size(), 1u);
}

TEST(StepInputTest, MoreSpecsThanTheDeviceTakesAreLeftOutButNeverASequencesOwn) {
  StepInput input(kLimits);  // Eight specs.
  const auto many = Group({1, 2}, 6), more = Group({3, 4}, 6), last = Group({5});
  input.Clear();
  for (const auto* group : {&many, &more, &last}) {
    Sequence& sequence = (*group)->first();
    input.Add(sequence, static_cast<int32_t>(sequence.known_tokens()), true, false);
  }
  input.Finish();
  EXPECT_EQ(input.specs().size(), 8u);
  EXPECT_EQ(input.entries()[0].draws, 6u);
  EXPECT_EQ(input.entries()[1].draws, 1u);
  EXPECT_EQ(input.entries()[2].draws, 1u);
  EXPECT_EQ(input.specs()[7].logit_row, 2);
}

TEST(StepInputTest, WithoutTokensOfAnswerNothingIsDrawn) {
  EngineRequest request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 0;
  request.prompt_logprobs = 0;
  RequestGroup group(std::move(request), 1, {});
  StepInput input(kLimits);
  input.Clear();
  input.Add(group.first(), 3, true, false);
  input.Finish();
  EXPECT_THAT(input.batch().logit_rows, ElementsAre(0, 1));
  EXPECT_EQ(input.entries()[0].draws, 0u);
  EXPECT_EQ(input.entries()[0].scores, 2u);
}

}  // namespace
}  // namespace renga
