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

SequenceView Scored(SequenceView view) {
  view.scores = true;
  return view;
}

StepPlan PlanFor(const std::vector<SequenceView>& views, int64_t free_pages,
                 const SchedulerLimits& limits = {}, const StepCost& cost = StepCost()) {
  Scheduler scheduler(limits);
  StepPlan plan;
  scheduler.Plan(views, free_pages, cost, plan);
  return plan;
}

// Has seen steps of a machine on which each of these takes so many microseconds.
struct Machine {
  double step = 2000;
  double row = 500;
  double logit_row = 0;
  double attended = 0;

  void Teach(StepCost& cost) const {
    std::mt19937 rng(1);
    for (int i = 0; i < 400; ++i) {
      const int64_t rows = 1 + static_cast<int64_t>(rng() % (i % 2 == 0 ? 16 : 400));
      const StepShape shape{.rows = rows,
                            .logit_rows = 1 + static_cast<int64_t>(rng()) % rows,
                            .attended = rows * static_cast<int64_t>(1 + rng() % 1000)};
      const double time = step + row * static_cast<double>(rows) +
                          logit_row * static_cast<double>(shape.logit_rows) +
                          attended * static_cast<double>(shape.attended);
      cost.Add(shape, Duration(static_cast<int64_t>(1000 * time)));
    }
  }
};

int64_t PromptRows(const StepPlan& plan) {
  int64_t rows = 0;
  for (const PlannedRows& planned : plan.rows) rows += planned.decodes ? 0 : planned.rows;
  return rows;
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

// ---- Slices in milliseconds ----------------------------------------------------------

TEST(SchedulerTest, ASliceIsAsLongAsTheStallAllows) {
  StepCost cost;
  Machine{.step = 2000, .row = 500}.Teach(cost);
  const std::vector<SequenceView> views = {Prompt(0, 3000), Decoding(1, 20),
                                           Decoding(2, 30)};
  // 50 ms = 2 ms + (2 + 94) rows of 0.5 ms.
  EXPECT_NEAR(static_cast<double>(PromptRows(PlanFor(views, 100, {}, cost))), 94, 5);
  const SchedulerLimits short_stall{.decode_stall = std::chrono::milliseconds(20)};
  EXPECT_NEAR(static_cast<double>(PromptRows(PlanFor(views, 100, short_stall, cost))), 34,
              4);
}

TEST(SchedulerTest, AloneAPromptIsNotBoundByTheStall) {
  StepCost cost;
  Machine{.row = 5000}.Teach(cost);
  EXPECT_EQ(PromptRows(PlanFor({Prompt(0, 3000)}, 100, {}, cost)), 512);
  EXPECT_EQ(PromptRows(PlanFor({Prompt(0, 3000), Paused(Decoding(1, 9))}, 100, {}, cost)),
            512);
}

TEST(SchedulerTest, AFixedSliceIsObeyedWhateverItCosts) {
  StepCost cost;
  Machine{.row = 5000}.Teach(cost);
  EXPECT_EQ(PromptRows(PlanFor({Prompt(0, 3000), Decoding(1, 9)}, 100,
                               {.prefill_slice_tokens = 100}, cost)),
            100);
}

TEST(SchedulerTest, BeforeAnythingWasMeasuredASliceFillsTheStep) {
  EXPECT_EQ(PromptRows(PlanFor({Prompt(0, 3000), Decoding(1, 9)}, 100)), 511);
}

TEST(SchedulerTest, WhatTheDecodingOnesAttendToShortensTheSlice) {
  StepCost cost;
  Machine{.step = 2000, .row = 200, .attended = 2}.Teach(cost);
  const auto rows = [&](int64_t context, int64_t position) {
    return PromptRows(
        PlanFor({Prompt(0, 5000, position), Decoding(1, context)}, 200, {}, cost));
  };
  EXPECT_LT(rows(10000, 0), rows(100, 0));
  EXPECT_LT(rows(100, 3000), rows(100, 0)) << "and so does where the slice begins";
}

TEST(SchedulerTest, PromptsShareTheTimeInTheirOrder) {
  StepCost cost;
  Machine{.step = 2000, .row = 500}.Teach(cost);
  const StepPlan plan = PlanFor(
      {Prompt(0, 60), Prompt(1, 30), Prompt(2, 3000), Prompt(3, 3001), Decoding(4, 20)},
      200, {}, cost);
  ASSERT_GE(plan.rows.size(), 4u);
  EXPECT_THAT(Rows(plan), testing::Contains(P{1, 30}));
  EXPECT_THAT(Rows(plan), testing::Contains(P{0, 60}));
  EXPECT_NEAR(static_cast<double>(PromptRows(plan)), 95, 6);
  EXPECT_LE(cost.Predict(plan.shape), std::chrono::milliseconds(50));
  EXPECT_EQ(plan.rows.size(), 4u) << "the fourth prompt finds no time left";
}

TEST(SchedulerTest, TheFirstPromptMakesProgressHoweverManyDecode) {
  StepCost cost;
  Machine{.step = 20000, .row = 5000}.Teach(cost);
  std::vector<SequenceView> views = {Prompt(0, 3000), Prompt(1, 3000), Prompt(2, 3)};
  for (uint64_t i = 3; i < 20; ++i) views.push_back(Decoding(i, 50));
  const StepPlan plan = PlanFor(views, 100, {}, cost);
  EXPECT_EQ(PromptRows(plan), 3) << "the shortest, and nobody else";
  views[2].tokens = 300;
  EXPECT_EQ(PromptRows(PlanFor(views, 100, {}, cost)), kLeastSliceRows);
  EXPECT_EQ(PromptRows(PlanFor(views, 100, {.max_step_tokens = 64}, cost)),
            kLeastSliceRows);
  EXPECT_EQ(
      PromptRows(PlanFor(views, 100, {.max_sequences = 18, .max_step_tokens = 20}, cost)),
      3)
      << "as far as the step has rows";
}

// ---- Logit rows ----------------------------------------------------------------------

TEST(SchedulerTest, AScoredPromptTakesALogitRowForEachOfItsRows) {
  const SchedulerLimits limits{.max_sequences = 8, .max_logit_rows = 40};
  EXPECT_THAT(Rows(PlanFor({Scored(Prompt(0, 100))}, 10, limits)), ElementsAre(P{0, 40}));
  const StepPlan plan = PlanFor({Scored(Prompt(0, 100)), Decoding(1, 9)}, 10, limits);
  EXPECT_THAT(Rows(plan), ElementsAre(P{1, 1}, P{0, 39}));
  EXPECT_EQ(plan.shape.logit_rows, 40);
  EXPECT_THAT(Rows(PlanFor({Scored(Prompt(0, 30))}, 10, limits)), ElementsAre(P{0, 30}));
}

TEST(SchedulerTest, WithoutALogitRowAPromptStopsBeforeItsLastToken) {
  const SchedulerLimits limits{.max_sequences = 8, .max_logit_rows = 40};
  const StepPlan plan =
      PlanFor({Scored(Prompt(0, 100, 0, 1)), Prompt(1, 50, 0, 2), Prompt(2, 1, 0, 3),
               Scored(Prompt(3, 10, 0, 4)), Prompt(4, 20, 0, 5)},
              10, limits);
  EXPECT_THAT(Rows(plan), ElementsAre(P{0, 40}, P{1, 49}, P{4, 19}));
  EXPECT_FALSE(plan.rows[1].samples);
  EXPECT_EQ(plan.shape.logit_rows, 40);
}

TEST(SchedulerTest, LogitRowsOfAScoredPromptCountInItsTime) {
  StepCost cost;
  Machine{.step = 2000, .row = 500, .logit_row = 1500}.Teach(cost);
  const StepPlan plan = PlanFor({Scored(Prompt(0, 300)), Decoding(1, 9)}, 10, {}, cost);
  EXPECT_NEAR(static_cast<double>(PromptRows(plan)), 23, 3);
  EXPECT_LE(cost.Predict(plan.shape), std::chrono::milliseconds(50));
}

TEST(SchedulerTest, ThePlanSaysWhatItsStepComputes) {
  const StepPlan plan = PlanFor({Prompt(0, 100, 64), Decoding(1, 65), Prompt(2, 600)}, 10,
                                {.prefill_slice_tokens = 40});
  EXPECT_THAT(Rows(plan), ElementsAre(P{1, 1}, P{0, 36}, P{2, 4}));
  EXPECT_EQ(plan.shape.rows, 41);
  EXPECT_EQ(plan.shape.logit_rows, 2);
  EXPECT_EQ(plan.shape.attended, 65 + (65 + 100) * 36 / 2 + 1 + 2 + 3 + 4);
  EXPECT_EQ(plan.new_pages, 3);
}

// ---- Limits and pages ----------------------------------------------------------------

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
class RandomPlans : public testing::Test {
 protected:
  std::vector<SequenceView> Views() {
    std::vector<SequenceView> views;
    const size_t count = rng() % 12;
    for (size_t i = 0; i < count; ++i) {
      const int64_t tokens = 1 + static_cast<int64_t>(rng() % 200);
      SequenceView view = rng() % 2
                              ? Decoding(i, tokens + 1)
                              : Prompt(i, tokens, static_cast<int64_t>(rng()) % tokens);
      view.scores = !view.answering && rng() % 3 == 0;
      view.paused = rng() % 5 == 0;
      views.push_back(view);
    }
    std::shuffle(views.begin(), views.end(), rng);
    return views;
  }

  void CheckRows(const std::vector<SequenceView>& views, int64_t free_pages) {
    gone = {plan.preempted.begin(), plan.preempted.end()};
    gone.insert(plan.pool_full.begin(), plan.pool_full.end());
    for (const int32_t index : plan.preempted) {
      free_pages += views[static_cast<size_t>(index)].pages;
    }
    planned.clear();
    int64_t need = 0, prompt_rows = 0, prompts = 0;
    StepShape shape, decoding;
    for (const PlannedRows& part : plan.rows) {
      const SequenceView& view = views[static_cast<size_t>(part.sequence)];
      ASSERT_FALSE(view.paused || gone.contains(part.sequence));
      ASSERT_TRUE(planned.insert(part.sequence).second);
      ASSERT_GT(part.rows, 0);
      ASSERT_LE(view.computed + part.rows, view.tokens);
      ASSERT_EQ(part.samples, view.computed + part.rows == view.tokens);
      need += std::max<int64_t>(0, (view.computed + part.rows + 63) / 64 - view.pages);
      shape.rows += part.rows;
      shape.logit_rows += view.scores ? part.rows : part.samples ? 1 : 0;
      for (int64_t i = 1; i <= part.rows; ++i) shape.attended += view.computed + i;
      if (part.decodes) decoding = shape;
      prompt_rows += part.decodes ? 0 : part.rows;
      prompts += part.decodes ? 0 : 1;
    }
    ASSERT_LE(need, free_pages);
    ASSERT_EQ(need, plan.new_pages);
    ASSERT_EQ(shape.rows, plan.total_rows);
    ASSERT_EQ(shape.rows, plan.shape.rows);
    ASSERT_EQ(shape.logit_rows, plan.shape.logit_rows);
    ASSERT_EQ(shape.attended, plan.shape.attended);
    ASSERT_LE(shape.rows, limits.max_step_tokens);
    ASSERT_LE(shape.logit_rows, limits.max_logit_rows);
    ASSERT_LE(plan.rows.size(), static_cast<size_t>(limits.max_sequences));
    if (decoding.rows == 0) return;
    if (limits.prefill_slice_tokens > 0) {
      ASSERT_LE(prompt_rows, limits.prefill_slice_tokens);
    } else if (prompts > 1 || prompt_rows > kLeastSliceRows) {
      ASSERT_LE(cost.Predict(shape), limits.decode_stall);
    }
  }

  void CheckWhoTakesPart(const std::vector<SequenceView>& views) {
    const SequenceView* oldest = nullptr;
    for (size_t i = 0; i < views.size(); ++i) {
      if (views[i].paused) continue;
      if (!oldest || views[i].age < oldest->age) oldest = &views[i];
      const bool waits = !gone.contains(static_cast<int32_t>(i)) &&
                         !planned.contains(static_cast<int32_t>(i));
      ASSERT_FALSE(waits && views[i].answering);
    }
    if (oldest) {
      ASSERT_FALSE(
          testing::Value(plan.preempted, testing::Contains(oldest - views.data())));
    }
    if (oldest && plan.pool_full.empty()) {
      ASSERT_FALSE(plan.rows.empty()) << "some step is made";
    }
  }

  void Run(int rounds) {
    Scheduler scheduler(limits);
    for (int round = 0; round < rounds; ++round) {
      const std::vector<SequenceView> views = Views();
      const int64_t free_pages = static_cast<int64_t>(rng() % 4);
      scheduler.Plan(views, free_pages, cost, plan);
      CheckRows(views, free_pages);
      CheckWhoTakesPart(views);
      if (HasFatalFailure()) return;
    }
  }

  std::mt19937 rng{11};
  SchedulerLimits limits{.max_sequences = 12,
                         .prefill_slice_tokens = 50,
                         .max_step_tokens = 90,
                         .max_logit_rows = 20};
  StepCost cost;
  StepPlan plan;
  std::set<int32_t> gone;
  std::set<int32_t> planned;
};

TEST_F(RandomPlans, OfFixedSlicesKeepEveryLimit) { Run(3000); }

TEST_F(RandomPlans, OfTimedSlicesKeepEveryLimit) {
  Machine{.step = 2000, .row = 1000, .logit_row = 300, .attended = 1}.Teach(cost);
  limits.prefill_slice_tokens = 0;
  Run(3000);
}

}  // namespace
}  // namespace renga
