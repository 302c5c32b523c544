#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"
#include "renga/backend.h"

namespace renga {
namespace {

bool Decodes(const SequenceView& view) {
  return view.answering && view.tokens - view.computed == 1;
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits) : limits_(limits) {
  RENGA_CHECK(limits.max_sequences > 0 && limits.prefill_slice_tokens >= 0);
  RENGA_CHECK(limits.max_step_tokens >= limits.max_sequences);
}

void Scheduler::Plan(std::span<const SequenceView> sequences, int64_t free_pages,
                     const StepCost& cost, StepPlan& plan) {
  plan.Clear();
  active_.clear();
  paused_.clear();
  for (int32_t i = 0; i < static_cast<int32_t>(sequences.size()); ++i) {
    const SequenceView& view = sequences[static_cast<size_t>(i)];
    if (!view.paused) {
      active_.push_back(i);
    } else if (view.pages > 0) {
      paused_.push_back(i);
    }
  }
  const auto older = [&](int32_t a, int32_t b) {
    return sequences[static_cast<size_t>(a)].age < sequences[static_cast<size_t>(b)].age;
  };
  std::sort(active_.begin(), active_.end(), older);
  std::sort(paused_.begin(), paused_.end(), older);

  while (ChooseRows(sequences, cost, plan) > free_pages) {
    const int32_t victim = TakeVictim();
    if (victim < 0) {
      plan.pool_full.push_back(active_.front());
      active_.clear();
      continue;
    }
    plan.preempted.push_back(victim);
    free_pages += sequences[static_cast<size_t>(victim)].pages;
  }
}

int32_t Scheduler::TakeVictim() {
  std::vector<int32_t>& from = paused_.empty() ? active_ : paused_;
  if (&from == &active_ && active_.size() == 1) return -1;
  const int32_t victim = from.back();
  from.pop_back();
  return victim;
}

int64_t Scheduler::ChooseRows(std::span<const SequenceView> sequences,
                              const StepCost& cost, StepPlan& plan) {
  plan.rows.clear();
  plan.total_rows = 0;
  prompts_.clear();
  int64_t pages = 0;
  for (const int32_t i : active_) {
    const SequenceView& view = sequences[static_cast<size_t>(i)];
    if (!Decodes(view)) {
      prompts_.push_back(i);
    } else if (static_cast<int32_t>(plan.rows.size()) < limits_.max_sequences) {
      pages += AddRows(view, i, 1, plan);
    }
  }
  std::sort(prompts_.begin(), prompts_.end(), [&](int32_t a, int32_t b) {
    const SequenceView& left = sequences[static_cast<size_t>(a)];
    const SequenceView& right = sequences[static_cast<size_t>(b)];
    if (left.batch != right.batch) return left.batch < right.batch;
    if (left.tokens != right.tokens) return left.tokens < right.tokens;
    return left.age < right.age;
  });
  int64_t budget = limits_.max_step_tokens - plan.total_rows;
  if (plan.total_rows > 0) {
    const int64_t slice =
        limits_.prefill_slice_tokens > 0
            ? limits_.prefill_slice_tokens
            : cost.RowsWithin(limits_.decode_stall,
                              {.rows = plan.total_rows, .logit_rows = plan.total_rows}, 0,
                              budget);
    budget = std::min(budget, slice);
  }
  for (const int32_t i : prompts_) {
    if (budget == 0 || static_cast<int32_t>(plan.rows.size()) == limits_.max_sequences)
      break;
    const SequenceView& view = sequences[static_cast<size_t>(i)];
    const int64_t rows = std::min(view.tokens - view.computed, budget);
    pages += AddRows(view, i, rows, plan);
    budget -= rows;
  }
  return pages;
}

int64_t Scheduler::AddRows(const SequenceView& view, int32_t index, int64_t rows,
                           StepPlan& plan) {
  const int64_t end = view.computed + rows;
  plan.rows.push_back({.sequence = index,
                       .rows = static_cast<int32_t>(rows),
                       .samples = end == view.tokens,
                       .decodes = Decodes(view)});
  plan.total_rows += static_cast<int32_t>(rows);
  return std::max<int64_t>(0, PagesFor(end) - view.pages);
}

}  // namespace renga
