#include "model/chunk_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "tests/models/allocation_meter.h"

namespace renga {
namespace {

using testing::SizeIs;

constexpr BackendLimits kLimits{
    .max_rows = 512, .max_logit_rows = 64, .max_sequences = 64, .max_pages = 4096};

// rows, first position.
using Lengths = std::vector<std::pair<int32_t, int32_t>>;

std::vector<SequenceRows> Batch(const Lengths& lengths) {
  std::vector<SequenceRows> batch;
  int32_t row = 0;
  for (const auto& [rows, position] : lengths) {
    batch.push_back(
        {.first_row = row, .rows = rows, .first_position = position, .pages = {}});
    row += rows;
  }
  return batch;
}

int64_t Work(const AttendItem& item) { return int64_t{item.rows} * item.groups; }

// Every (sequence, KV head, row, visible group) lies in one item, and no item reaches
// beyond the groups that its last row sees or the rows of its sequence.
void ExpectCoveredOnce(std::span<const AttendItem> items, int32_t kv_heads,
                       const std::vector<SequenceRows>& batch) {
  std::map<std::tuple<int32_t, int32_t, int32_t, int32_t>, int32_t> covered;
  for (const AttendItem& item : items) {
    ASSERT_GE(item.rows, 1);
    ASSERT_LE(item.rows, kPlanRows);
    ASSERT_GE(item.groups, 1);
    for (int32_t row = item.first_row; row < item.first_row + item.rows; ++row) {
      for (int32_t group = item.first_group; group < item.first_group + item.groups;
           ++group) {
        ++covered[{item.sequence, item.kv_head, row, group}];
      }
    }
    const SequenceRows& sequence = batch[static_cast<size_t>(item.sequence)];
    const int32_t last = item.first_row + item.rows - 1;
    ASSERT_LT(last, sequence.first_row + sequence.rows);
    const int32_t last_position = sequence.first_position + last - sequence.first_row;
    ASSERT_LE((item.first_group + item.groups - 1) * 256, last_position);
  }
  for (size_t s = 0; s < batch.size(); ++s) {
    for (int32_t head = 0; head < kv_heads; ++head) {
      for (int32_t row = 0; row < batch[s].rows; ++row) {
        for (int32_t group = 0; group * 256 <= batch[s].first_position + row; ++group) {
          const auto count =
              covered[{static_cast<int32_t>(s), head, batch[s].first_row + row, group}];
          ASSERT_EQ(count, 1) << "sequence " << s << " row " << row << " group " << group;
        }
      }
    }
  }
}

TEST(ChunkPlanTest, GroupsBecomeVisibleEvery256Positions) {
  EXPECT_EQ(VisibleGroups(0), 1);
  EXPECT_EQ(VisibleGroups(255), 1);
  EXPECT_EQ(VisibleGroups(256), 2);
  EXPECT_EQ(VisibleGroups(8191), 32);
}

TEST(ChunkPlanTest, AnEmptyBatchHasNoItems) {
  ChunkPlan plan(3, kLimits);
  EXPECT_THAT(plan.Build({}), SizeIs(0));
}

TEST(ChunkPlanTest, OneRowAtTheStartIsOneItemPerHead) {
  ChunkPlan plan(3, kLimits);
  const auto batch = Batch({{1, 0}});
  const auto items = plan.Build(batch);
  ASSERT_THAT(items, SizeIs(3));
  ExpectCoveredOnce(items, 3, batch);
}

TEST(ChunkPlanTest, RandomBatchesAreCoveredOnceHeaviestFirst) {
  std::mt19937 random(20250101);
  for (int round = 0; round < 300; ++round) {
    const auto kv_heads = static_cast<int32_t>(1 + random() % 4);
    ChunkPlan plan(kv_heads, kLimits);
    Lengths lengths;
    for (size_t i = 1 + random() % 6; i > 0; --i) {
      const auto rows = static_cast<int32_t>(random() % 2 == 0 ? 1 : 1 + random() % 80);
      lengths.emplace_back(rows, static_cast<int32_t>(random() % 4096));
    }
    const auto batch = Batch(lengths);
    const auto items = plan.Build(batch);
    ExpectCoveredOnce(items, kv_heads, batch);
    EXPECT_TRUE(std::is_sorted(
        items.begin(), items.end(),
        [](const AttendItem& a, const AttendItem& b) { return Work(a) > Work(b); }));
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}

TEST(ChunkPlanTest, OneLongContextFeedsManyWorkers) {
  ChunkPlan plan(1, kLimits);
  const auto batch = Batch({{1, 8191}});  // 32 groups.
  const auto items = plan.Build(batch);
  EXPECT_GE(items.size(), 16u);
  EXPECT_LE(Work(items.front()), 2);
}

TEST(ChunkPlanTest, NoItemHoldsMoreThanItsShareUnlessItIsOneGroup) {
  BackendLimits limits = kLimits;
  limits.max_sequences = limits.max_rows;  // Every row may be cut.
  ChunkPlan plan(2, limits);
  for (const Lengths& lengths :
       {Lengths{{1, 4000}, {1, 100}, {1, 100}}, Lengths{{200, 3000}, {1, 10}},
        Lengths{{5, 7000}, {7, 0}, {1, 8000}}}) {
    const auto batch = Batch(lengths);
    const auto items = plan.Build(batch);
    int64_t total = 0;
    for (const AttendItem& item : items) total += Work(item);
    for (const AttendItem& item : items) {
      if (item.groups == 1) continue;
      EXPECT_LE(Work(item), std::max(total / kPlanPieces, kPlanLeastWork));
    }
  }
}

// What the header promises to backends that reserve room for partials.
TEST(ChunkPlanTest, NoMoreRowsAreCutThanThereMayBeSequences) {
  for (const int32_t most : {0, 1, 20, 64}) {
    BackendLimits limits = kLimits;
    limits.max_sequences = most;
    ChunkPlan plan(3, limits);
    Lengths lengths(10, {1, 8000});
    lengths.emplace_back(60, 7000);
    const auto batch = Batch(lengths);
    const auto items = plan.Build(batch);
    ExpectCoveredOnce(items, 3, batch);
    std::set<int32_t> cut_rows;
    for (const AttendItem& item : items) {
      const bool whole = item.first_group == 0 && item.groups >= 28;
      for (int32_t i = 0; i < item.rows && !whole; ++i)
        cut_rows.insert(item.first_row + i);
    }
    EXPECT_LE(cut_rows.size(), static_cast<size_t>(most));
    EXPECT_EQ(cut_rows.empty(), most < 16);  // The heaviest blocks have 16 rows.
  }
}

TEST(ChunkPlanTest, AFullStepWithinTheLimitsAllocatesNothing) {
  ChunkPlan plan(4, kLimits);
  Lengths lengths(63, {1, 8000});
  lengths.emplace_back(449, 5000);
  const auto mixed = Batch(lengths);
  const auto long_one = Batch({{1, 200'000}});
  const auto slice = Batch({{512, 100'000}});
  const int64_t before = test::AllocationCount();
  for (const auto& batch : {mixed, long_one, slice}) {
    const int64_t copied = test::AllocationCount();  // The loop's own copies.
    EXPECT_FALSE(plan.Build(batch).empty());
    EXPECT_EQ(test::AllocationCount(), copied);
  }
  EXPECT_GE(test::AllocationCount(), before);
}

}  // namespace
}  // namespace renga
