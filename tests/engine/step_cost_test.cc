// StepCost: learns made-up costs in spite of noise and interrupted steps, follows a
// machine that changes, never says that more is cheaper, and predicts a recorded trace.

#include "engine/step_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "tests/engine/step_trace.h"
#include "tests/models/allocation_meter.h"

namespace renga {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

using Cost = std::function<double(const StepShape&)>;  // In microseconds.

double Flat(const StepShape& step) {  // A device that is not full before 64 rows.
  return 3000.0 + 50.0 * static_cast<double>(std::max<int64_t>(0, step.rows - 64)) +
         0.02 * static_cast<double>(step.attended);
}
double Linear(const StepShape& step) {  // A device that every row costs time.
  return 2000.0 + 600.0 * static_cast<double>(step.rows) +
         200.0 * static_cast<double>(step.logit_rows) +
         0.9 * static_cast<double>(step.attended);
}

Duration Microseconds(double time) {
  return Duration(static_cast<int64_t>(time * 1000.0));
}

bool Near(Duration predicted, double time) {
  const double ratio = static_cast<double>(predicted.count()) / (time * 1000.0);
  return ratio <= 1.3 && ratio >= 1 / 1.3;
}

StepShape Decoding(int64_t sequences, int64_t context) {
  return {.rows = sequences, .logit_rows = sequences, .attended = sequences * context};
}
StepShape Prompt(int64_t rows, int64_t position = 0) {
  return {.rows = rows, .logit_rows = 1, .attended = AttendedBy(position, rows)};
}
StepShape Sum(const StepShape& a, const StepShape& b) {
  return {.rows = a.rows + b.rows,
          .logit_rows = a.logit_rows + b.logit_rows,
          .attended = a.attended + b.attended};
}

class RandomSteps {
 public:
  explicit RandomSteps(uint32_t seed) : rng_(seed) {}
  int64_t Below(int64_t end) {
    return std::uniform_int_distribution<int64_t>(0, end - 1)(rng_);
  }
  StepShape Any() {
    const StepShape decoding = Decoding(1 + Below(16), 20 + Below(500));
    return Below(3) == 0 ? Sum(decoding, Prompt(1 + Below(300), Below(400))) : decoding;
  }
  double Noise() { return std::exp(std::normal_distribution<double>(0.0, 0.08)(rng_)); }

 private:
  std::mt19937 rng_;
};

// Shares of `steps` that were predicted well, each before it was added.
double Follow(StepCost& cost, const Cost& truth, RandomSteps& random, int steps,
              int64_t outlier_every = 0) {
  int good = 0;
  for (int i = 0; i < steps; ++i) {
    const StepShape step = random.Any();
    double time = truth(step) * random.Noise();
    good += Near(cost.Predict(step), time) ? 1 : 0;
    if (outlier_every > 0 && random.Below(outlier_every) == 0) time *= 10;
    cost.Add(step, Microseconds(time));
  }
  return static_cast<double>(good) / steps;
}

TEST(StepCostTest, KnowsNothingBeforeAStepWasMeasured) {
  StepCost cost;
  EXPECT_EQ(cost.Predict(Prompt(100)), Duration{});
  EXPECT_EQ(cost.RowsWithin(milliseconds(1), Decoding(4, 100), 0, 300), 300);
  cost.Add(Prompt(0), milliseconds(5));
  cost.Add(Prompt(5), Duration{});
  EXPECT_EQ(cost.Predict(Prompt(100)), Duration{}) << "these say nothing";
}

TEST(StepCostTest, OneStepGivesItsOwnTime) {
  StepCost cost;
  cost.Add(Prompt(20), milliseconds(7));
  EXPECT_NEAR(static_cast<double>(cost.Predict(Prompt(20)).count()), 7e6, 1e5);
}

TEST(StepCostTest, LearnsEveryKindOfCost) {
  for (const Cost& truth : {Cost(Flat), Cost(Linear)}) {
    StepCost cost;
    RandomSteps random(1);
    Follow(cost, truth, random, 50);
    EXPECT_GE(Follow(cost, truth, random, 500), 0.98);
    // Each term on its own, not only their usual mixtures.
    EXPECT_TRUE(Near(cost.Predict(Decoding(1, 50)), truth(Decoding(1, 50))));
    EXPECT_TRUE(Near(cost.Predict(Decoding(16, 3000)), truth(Decoding(16, 3000))));
    EXPECT_TRUE(Near(cost.Predict(Prompt(256)), truth(Prompt(256))));
    EXPECT_TRUE(Near(cost.Predict(Prompt(256, 2000)), truth(Prompt(256, 2000))));
  }
}

TEST(StepCostTest, InterruptedStepsDoNotSpoilThePredictions) {
  StepCost cost;
  RandomSteps random(2);
  Follow(cost, Linear, random, 50, 15);
  EXPECT_GE(Follow(cost, Linear, random, 1000, 15), 0.9);
  // One alone, ten times as long, is not taken for the new normal.
  const StepShape step = Decoding(4, 100);
  for (int i = 0; i < 50; ++i) cost.Add(step, Microseconds(Linear(step)));
  cost.Add(step, Microseconds(10 * Linear(step)));
  EXPECT_TRUE(Near(cost.Predict(step), Linear(step)));
}

TEST(StepCostTest, FollowsAMachineThatBecomesTwiceAsSlowAndFastAgain) {
  StepCost cost;
  RandomSteps random(3);
  const Cost slow = [](const StepShape& step) { return 2 * Linear(step); };
  Follow(cost, Linear, random, 200);
  Follow(cost, slow, random, 15);
  EXPECT_GE(Follow(cost, slow, random, 200), 0.97);
  Follow(cost, Linear, random, 15);
  EXPECT_GE(Follow(cost, Linear, random, 200), 0.97);
}

TEST(StepCostTest, FollowsACostThatChangesItsShape) {
  StepCost cost;
  RandomSteps random(8);
  Follow(cost, Linear, random, 1000);
  Follow(cost, Flat, random, 300);
  EXPECT_GE(Follow(cost, Flat, random, 300), 0.95);
}

TEST(StepCostTest, ALongTimeOfDecodingKeepsWhatIsKnownOfPrompts) {
  StepCost cost;
  RandomSteps random(4);
  Follow(cost, Linear, random, 100);
  for (int i = 0; i < 100000; ++i) {
    const StepShape step = Decoding(6 + random.Below(3), 100 + random.Below(300));
    cost.Add(step, Microseconds(Linear(step) * random.Noise()));
  }
  for (const int64_t rows : {16, 64, 256}) {
    EXPECT_TRUE(Near(cost.Predict(Prompt(rows)), Linear(Prompt(rows)))) << rows;
  }
}

TEST(StepCostTest, SizesNeverSeenCostAtLeastInProportion) {
  StepCost cost;
  for (int i = 0; i < 100; ++i) {  // No slope shows.
    cost.Add(Decoding(1 + i % 8, 50), milliseconds(3));
  }
  for (const int64_t factor : {2, 8, 64}) {
    EXPECT_GE(cost.Predict(Prompt(8 * factor)), milliseconds(3 * factor) * 0.95);
    EXPECT_LE(cost.Predict(Prompt(8 * factor)), milliseconds(3 * factor) * 3);
  }
}

TEST(StepCostTest, MoreWorkIsNeverPredictedToBeCheaper) {
  RandomSteps random(5);
  for (int round = 0; round < 30; ++round) {
    StepCost cost;
    // Times that make no sense at all.
    for (int i = 0; i < 40; ++i) {
      cost.Add(random.Any(), microseconds(1 + random.Below(100000)));
    }
    const StepShape start = random.Any();
    Duration last{};
    for (int64_t rows = 1; rows < 1500; rows += 1 + rows / 8) {
      const Duration predicted = cost.Predict(Sum(start, Prompt(rows)));
      ASSERT_GE(predicted, last) << rows;
      ASSERT_GT(predicted, Duration{});
      last = predicted;
    }
    StepShape more = start;
    more.logit_rows += 10;
    EXPECT_GE(cost.Predict(more), cost.Predict(start));
    more.attended += 10000;
    EXPECT_GE(cost.Predict(more), cost.Predict(start));
  }
}

TEST(StepCostTest, RowsWithinIsTheMostThatFits) {
  StepCost cost;
  RandomSteps random(6);
  Follow(cost, Linear, random, 300);
  const StepShape decoding = Decoding(8, 200);
  for (const bool scored : {false, true}) {
    for (const int64_t position : {0, 100, 3000}) {
      const int64_t rows =
          cost.RowsWithin(milliseconds(50), decoding, position, 512, scored);
      const auto with = [&](int64_t count) {
        StepShape step = Sum(decoding, Prompt(count, position));
        if (scored) step.logit_rows = decoding.logit_rows + count;
        return cost.Predict(step);
      };
      EXPECT_LE(with(rows), milliseconds(50));
      EXPECT_GT(with(rows + 1), milliseconds(50));
    }
  }
  EXPECT_EQ(cost.RowsWithin(milliseconds(50), decoding, 0, 10), 10)
      << "no more than asked";
  EXPECT_EQ(cost.RowsWithin(milliseconds(1), decoding, 0, 512), 1) << "but at least one";
  EXPECT_LT(cost.RowsWithin(milliseconds(50), decoding, 3000, 512),
            cost.RowsWithin(milliseconds(50), decoding, 0, 512));
}

TEST(StepCostTest, ClocksThatJumpLeaveFinitePredictions) {
  StepCost cost;
  cost.Add(Prompt(1), Duration(1));
  cost.Add(Prompt(100000), std::chrono::hours(10));
  for (int i = 0; i < 200; ++i) {
    cost.Add(Prompt(1 + i), i % 2 == 0 ? Duration(1) : Duration(std::chrono::hours(10)));
  }
  EXPECT_GT(cost.Predict(Prompt(10)), Duration{});
  EXPECT_LT(cost.Predict(Prompt(10)), std::chrono::hours(1000));
}

TEST(StepCostTest, AllocatesNothingOnceItIsThere) {
  StepCost cost;
  RandomSteps random(7);
  const int64_t before = test::AllocationCount();
  for (int i = 0; i < 100; ++i) {
    const StepShape step = random.Any();
    cost.Add(step, milliseconds(1 + i % 7));
    cost.RowsWithin(milliseconds(5), step, 0, 100);
  }
  EXPECT_EQ(test::AllocationCount(), before);
}

TEST(StepCostTest, PredictsNineOfTenRecordedStepsWithinThreeTenths) {
  StepCost cost;
  int steps = 0, good = 0, seen = 0;
  for (const TracedStep& step : kStepTrace) {
    const Duration time = microseconds(step.microseconds);
    if (++seen > 50) {
      ++steps;
      good += Near(cost.Predict(step.shape), static_cast<double>(step.microseconds));
    }
    cost.Add(step.shape, time);
  }
  EXPECT_GE(good, steps * 9 / 10) << good << " of " << steps;
}

}  // namespace
}  // namespace renga
