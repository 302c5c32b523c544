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
  RENGA_CHECK(limits.max_logit_rows >= limits.max_sequences);
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

  while (true) {
    ChooseRows(sequences, cost, plan);
    if (plan.new_pages <= free_pages) return;
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

void Scheduler::ChooseRows(std::span<const SequenceView> sequences, const StepCost& cost,
                           StepPlan& plan) {
  plan.rows.clear();
  plan.total_rows = 0;
  plan.shape = {};
  plan.new_pages = 0;
  prompts_.clear();
  for (const int32_t i : active_) {
    const SequenceView& view = sequences[static_cast<size_t>(i)];
    if (!Decodes(view)) {
      prompts_.push_back(i);
    } else if (static_cast<int32_t>(plan.rows.size()) < limits_.max_sequences) {
      AddRows(view, i, 1, plan);
    }
  }
  AddPrompts(sequences, cost, plan);
}

void Scheduler::AddPrompts(std::span<const SequenceView> sequences, const StepCost& cost,
                           StepPlan& plan) {
  std::sort(prompts_.begin(), prompts_.end(), [&](int32_t a, int32_t b) {
    const SequenceView& left = sequences[static_cast<size_t>(a)];
    const SequenceView& right = sequences[static_cast<size_t>(b)];
    if (left.batch != right.batch) return left.batch < right.batch;
    if (left.tokens != right.tokens) return left.tokens < right.tokens;
    return left.age < right.age;
  });
  int64_t budget = limits_.max_step_tokens - plan.total_rows;
  const bool others_decode = plan.total_rows > 0;
  const bool timed = others_decode && limits_.prefill_slice_tokens == 0;
  if (others_decode && !timed) {
    budget = std::min<int64_t>(budget, limits_.prefill_slice_tokens);
  }
  bool first = true;
  for (const int32_t i : prompts_) {
    const bool full = static_cast<int32_t>(plan.rows.size()) == limits_.max_sequences;
    if (full || budget == 0) break;
    const SequenceView& view = sequences[static_cast<size_t>(i)];
    int64_t rows = FitLogits(view, budget, plan);
    if (rows == 0) continue;
    if (timed) rows = FitTime(view, rows, first, cost, plan);
    if (rows == 0) break;
    AddRows(view, i, rows, plan);
    budget -= rows;
    first = false;
  }
}

// The most rows of a prompt for which there are rows and logit rows left.
int64_t Scheduler::FitLogits(const SequenceView& view, int64_t budget,
                             const StepPlan& plan) const {
  const int64_t known = view.tokens - view.computed;
  const int64_t logits = limits_.max_logit_rows - plan.shape.logit_rows;
  const int64_t rows = std::min(known, budget);
  if (view.scores) return std::min(rows, logits);
  return rows == known && logits == 0 ? rows - 1 : rows;
}

// Of `most` rows those that the step can compute in time; 0: not even one of them. The
// first prompt of a step has its least number at any rate.
int64_t Scheduler::FitTime(const SequenceView& view, int64_t most, bool first,
                           const StepCost& cost, const StepPlan& plan) const {
  const int64_t rows =
      cost.RowsWithin(limits_.decode_stall, plan.shape, view.computed, most, view.scores);
  if (first) return std::max(rows, std::min(most, kLeastSliceRows));
  if (rows > 1) return rows;
  StepShape with = plan.shape;
  with.rows += 1;
  with.logit_rows += 1;
  with.attended += AttendedBy(view.computed, 1);
  return cost.Predict(with) <= limits_.decode_stall ? rows : 0;
}

void Scheduler::AddRows(const SequenceView& view, int32_t index, int64_t rows,
                        StepPlan& plan) {
  const int64_t end = view.computed + rows;
  const bool samples = end == view.tokens;
  plan.rows.push_back({.sequence = index,
                       .rows = static_cast<int32_t>(rows),
                       .samples = samples,
                       .decodes = Decodes(view)});
  plan.total_rows += static_cast<int32_t>(rows);
  plan.shape.rows += rows;
  plan.shape.logit_rows += view.scores ? rows : (samples ? 1 : 0);
  plan.shape.attended += AttendedBy(view.computed, rows);
  plan.new_pages += std::max<int64_t>(0, PagesFor(end) - view.pages);
}

}  // namespace renga
