// Scheduler: who computes how many rows, who is preempted, and that the oldest goes on.

#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace renga {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

SequenceView Prompt(uint64_t age, int64_t tokens, int64_t computed = 0,
                    uint64_t batch = 0) {
  return {.age = age,
          .batch = batch,
          .tokens = tokens,
          .computed = computed,
          .pages = (computed + 63) / 64};
}
SequenceView Decoding(uint64_t age, int64_t tokens) {
  return {.age = age,
          .tokens = tokens,
          .computed = tokens - 1,
          .pages = (tokens - 1 + 63) / 64,
          .answering = true};
}
SequenceView Paused(SequenceView view) {
  view.paused = true;
  return view;
}

StepPlan PlanFor(std::vector<SequenceView> views, int64_t free_pages,
                 SchedulerLimits limits = {}) {
  Scheduler scheduler(limits);
  StepPlan plan;
  scheduler.Plan(views, free_pages, plan);
  return plan;
}

// {sequence, rows} of each entry, in order.
std::vector<std::pair<int, int>> Rows(const StepPlan& plan) {
  std::vector<std::pair<int, int>> rows;
  for (const PlannedRows& planned : plan.rows) {
    rows.emplace_back(planned.sequence, planned.rows);
  }
  return rows;
}
using P = std::pair<int, int>;

TEST(SchedulerTest, DecodeRowsComeFirstOldestFirstThenASliceOfThePrompt) {
  const StepPlan plan = PlanFor({Prompt(0, 1000), Decoding(3, 20), Decoding(2, 30)}, 100,
                                {.prefill_slice_tokens = 64});
  EXPECT_THAT(Rows(plan), ElementsAre(P{2, 1}, P{1, 1}, P{0, 64}));
  EXPECT_EQ(plan.total_rows, 66);
  EXPECT_TRUE(plan.rows[0].samples && plan.rows[0].decodes);
  EXPECT_FALSE(plan.rows[2].samples || plan.rows[2].decodes);
}

TEST(SchedulerTest, AloneAPromptMayFillTheStep) {
  const StepPlan plan = PlanFor({Prompt(0, 500)}, 100,
                                {.prefill_slice_tokens = 64, .max_step_tokens = 512});
  EXPECT_THAT(Rows(plan), ElementsAre(P{0, 500}));
  EXPECT_TRUE(plan.rows[0].samples);
}

TEST(SchedulerTest, ShortPromptsFirstInsideABatchAndEarlierBatchesBeforeLater) {
  const StepPlan plan = PlanFor({Prompt(0, 300, 0, 1), Prompt(1, 100, 0, 1),
                                 Prompt(2, 10, 0, 2), Prompt(3, 100, 0, 1)},
                                100, {.max_step_tokens = 505});
  EXPECT_THAT(Rows(plan), ElementsAre(P{1, 100}, P{3, 100}, P{0, 300}, P{2, 5}));
}

TEST(SchedulerTest, ASliceGoesOnWhereTheLastOneEnded) {
  const StepPlan plan = PlanFor({Prompt(0, 70, 65)}, 100);
  EXPECT_THAT(Rows(plan), ElementsAre(P{0, 5}));
  EXPECT_TRUE(plan.rows[0].samples);
}

TEST(SchedulerTest, NoMoreSequencesInAStepThanAllowed) {
  const StepPlan plan =
      PlanFor({Decoding(5, 9), Decoding(1, 9), Decoding(2, 9), Prompt(0, 9)}, 100,
              {.max_sequences = 2});
  EXPECT_THAT(Rows(plan), ElementsAre(P{1, 1}, P{2, 1}));
}

TEST(SchedulerTest, PausedSequencesTakeNoPartAndKeepTheirPages) {
  const StepPlan plan = PlanFor({Paused(Decoding(0, 65)), Decoding(1, 20)}, 0);
  EXPECT_THAT(Rows(plan), ElementsAre(P{1, 1}));
  EXPECT_THAT(plan.preempted, IsEmpty());
}

TEST(SchedulerTest, TheYoungestIsPreemptedWhenPagesRunOut) {
  const StepPlan plan = PlanFor({Decoding(0, 65), Decoding(2, 40), Decoding(1, 40)}, 0);
  EXPECT_THAT(plan.preempted, ElementsAre(1));
  EXPECT_THAT(Rows(plan), ElementsAre(P{0, 1}, P{2, 1}));
}

TEST(SchedulerTest, TheYoungestIsPreemptedEvenIfItIsTheOneInNeed) {
  const StepPlan plan = PlanFor({Decoding(0, 40), Decoding(1, 65)}, 0);
  EXPECT_THAT(plan.preempted, ElementsAre(1));
  EXPECT_THAT(Rows(plan), ElementsAre(P{0, 1}));
}

TEST(SchedulerTest, PausedOnesArePreemptedBeforeAnyThatComputes) {
  const StepPlan plan =
      PlanFor({Paused(Decoding(0, 10)), Paused(Decoding(1, 10)), Decoding(2, 65)}, 0);
  EXPECT_THAT(plan.preempted, ElementsAre(1)) << "the younger of the paused";
  EXPECT_THAT(Rows(plan), ElementsAre(P{2, 1}));
}

TEST(SchedulerTest, OneThatIsAloneAndDoesNotFitHasFilledThePool) {
  const StepPlan plan = PlanFor({Decoding(0, 129)}, 0);
  EXPECT_THAT(plan.pool_full, ElementsAre(0));
  EXPECT_THAT(plan.rows, IsEmpty());
  EXPECT_EQ(plan.total_rows, 0);
}

TEST(SchedulerTest, NothingToDoIsAnEmptyPlan) {
  EXPECT_THAT(PlanFor({}, 5).rows, IsEmpty());
  EXPECT_THAT(PlanFor({Paused(Decoding(0, 5))}, 5).rows, IsEmpty());
}

// Any mixture: every plan fits the pool and the limits, every decoding sequence that was
// not preempted gets its row, and the oldest that can compute is never preempted.
TEST(SchedulerTest, RandomPlansKeepEveryLimit) {
  std::mt19937 rng(11);
  const SchedulerLimits limits{
      .max_sequences = 12, .prefill_slice_tokens = 50, .max_step_tokens = 90};
  Scheduler scheduler(limits);
  StepPlan plan;
  for (int round = 0; round < 3000; ++round) {
    std::vector<SequenceView> views;
    const size_t count = rng() % 12;
    for (size_t i = 0; i < count; ++i) {
      const int64_t tokens = 1 + static_cast<int64_t>(rng() % 200);
      SequenceView view = rng() % 2
                              ? Decoding(i, tokens + 1)
                              : Prompt(i, tokens, static_cast<int64_t>(rng()) % tokens);
      view.paused = rng() % 5 == 0;
      views.push_back(view);
    }
    std::shuffle(views.begin(), views.end(), rng);
    int64_t free = static_cast<int64_t>(rng() % 4);
    scheduler.Plan(views, free, plan);

    std::set<int32_t> gone(plan.preempted.begin(), plan.preempted.end());
    gone.insert(plan.pool_full.begin(), plan.pool_full.end());
    int64_t need = 0, rows = 0, prefill = 0;
    bool decodes = false;
    std::set<int32_t> planned;
    for (const PlannedRows& part : plan.rows) {
      const SequenceView& view = views[static_cast<size_t>(part.sequence)];
      ASSERT_FALSE(view.paused || gone.contains(part.sequence));
      ASSERT_TRUE(planned.insert(part.sequence).second);
      ASSERT_GT(part.rows, 0);
      ASSERT_LE(view.computed + part.rows, view.tokens);
      ASSERT_EQ(part.samples, view.computed + part.rows == view.tokens);
      need += std::max<int64_t>(0, (view.computed + part.rows + 63) / 64 - view.pages);
      rows += part.rows;
      decodes = decodes || part.decodes;
      if (!part.decodes) prefill += part.rows;
    }
    for (const int32_t index : plan.preempted) {
      free += views[static_cast<size_t>(index)].pages;
    }
    ASSERT_LE(need, free);
    ASSERT_EQ(rows, plan.total_rows);
    ASSERT_LE(rows, limits.max_step_tokens);
    if (decodes) {
      ASSERT_LE(prefill, limits.prefill_slice_tokens);
    }
    const SequenceView* oldest = nullptr;
    for (size_t i = 0; i < count; ++i) {
      if (views[i].paused) continue;
      if (!oldest || views[i].age < oldest->age) oldest = &views[i];
      const bool waits = !gone.contains(static_cast<int32_t>(i)) &&
                         !planned.contains(static_cast<int32_t>(i));
      ASSERT_FALSE(waits && views[i].answering &&
                   views[i].tokens - views[i].computed == 1);
    }
    if (oldest) {
      ASSERT_FALSE(
          testing::Value(plan.preempted, testing::Contains(oldest - views.data())));
    }
  }
}

}  // namespace
}  // namespace renga
