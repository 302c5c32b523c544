// Scheduler: running sequences + free pages + limits -> what the next step computes.
//
// Rules:
//   * every sequence that decodes gets its row first, oldest first;
//   * prompts then share the rows that are left of `max_step_tokens`. An earlier batch
//     goes first, inside a batch the shorter prompt;
//   * while others decode, prompts take only as many rows as the step can compute within
//     `decode_stall` by the measured cost of steps (that bounds the gap between two
//     tokens), or a fixed number. The first prompt gets kLeastSliceRows at any rate, so
//     that it makes progress however many decode;
//   * at most `max_logit_rows` rows have logits: the last known token's of each sequence
//     that reaches it, and each row of a sequence with `scores`. A slice is cut where
//     they run out; a prompt that could take no row waits for the next step;
//   * at most `max_sequences` sequences take part in a step;
//   * when the pages do not suffice, somebody is preempted: paused sequences first (a
//     reader that stalls may hold up nobody else), the youngest of them, then the
//     youngest of all. The oldest that can compute is never preempted, so it always makes
//     progress; one that is alone and still does not fit has filled the pool.
// Pages that several sequences share come back only with the last of them, but a plan
// counts those of the preempted as if they were theirs alone. So a plan that preempts
// somebody says who has to go, and no more: once they are gone, it is made again.
// Nothing here changes what a sequence computes, only when.
//
// Pure: no clock, thread or device; the members are scratch memory alone, so that a plan
// allocates nothing once the largest number of sequences has been seen.
// Invariant: max_sequences <= max_logit_rows, max_step_tokens.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_cost.h"
#include "engine/step_plan.h"
#include "renga/types.h"

namespace renga {

// However long the others' step takes already, the first prompt of a step gets so many
// rows. They cost it 4 ms more (a model of 135M parameters on two cores, where a step of
// one row takes 3 ms, of eight 7, of sixteen 11); a row a step would cost the prompt a
// step of everybody for each of its tokens.
inline constexpr int64_t kLeastSliceRows = 8;

struct SchedulerLimits {
  int32_t max_sequences = 64;  // Sequences in one step.
  // Prompt rows of a step while others decode; 0: as many as `decode_stall` allows.
  int32_t prefill_slice_tokens = 0;
  Duration decode_stall = std::chrono::milliseconds(50);
  int32_t max_step_tokens = 512;  // Rows of one step; at least max_sequences.
  int32_t max_logit_rows = 64;    // At least max_sequences.
};

// One running sequence, as far as planning needs it.
struct SequenceView {
  uint64_t age = 0;        // Order of arrival: smaller is older; no two are equal.
  uint64_t batch = 0;      // Order of leaving the queue; prefill follows it.
  int64_t tokens = 0;      // Known: prompt and what was sampled.
  int64_t computed = 0;    // Of these, in the KV pages; less than `tokens`.
  int64_t pages = 0;       // Held; shared ones too.
  bool answering = false;  // At least one token was sampled.
  bool scores = false;     // The logits of each of its rows are wanted.
  bool paused = false;     // Takes part in nothing.
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  // REQUIRES: the views' pages and `free_pages` (evictable ones among them) come from one
  // pool.
  void Plan(std::span<const SequenceView> sequences, int64_t free_pages,
            const StepCost& cost, StepPlan& plan);

 private:
  // Fills the plan's rows from those still in `active_`.
  void ChooseRows(std::span<const SequenceView> sequences, const StepCost& cost,
                  StepPlan& plan);
  void AddPrompts(std::span<const SequenceView> sequences, const StepCost& cost,
                  StepPlan& plan);
  int64_t FitLogits(const SequenceView& view, int64_t budget, const StepPlan& plan) const;
  int64_t FitTime(const SequenceView& view, int64_t most, bool first,
                  const StepCost& cost, const StepPlan& plan) const;
  static void AddRows(const SequenceView& view, int32_t index, int64_t rows,
                      StepPlan& plan);
  // Takes the next victim out of `paused_` or `active_`; -1: only one active is left.
  int32_t TakeVictim();

  const SchedulerLimits limits_;
  std::vector<int32_t> active_;   // Can compute; oldest first.
  std::vector<int32_t> paused_;   // Hold pages; oldest first.
  std::vector<int32_t> prompts_;  // Of active_: to prefill, in order.
};

}  // namespace renga
