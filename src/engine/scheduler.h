// Scheduler: running sequences + free pages + limits -> what the next step computes.
//
// Rules:
//   * every sequence that decodes gets its row first, oldest first;
//   * prompts then share the rows that the step can take within `decode_stall` by the
//     measured cost of steps while others decode (that bounds the gap between two
//     tokens), up to `max_step_tokens` when none does. An earlier batch goes first,
//     inside a batch the shorter prompt;
//   * at most `max_logit_rows` rows have logits: a prompt whose own log-probabilities are
//     wanted takes one for each of its rows;
//   * at most `max_sequences` sequences take part in a step;
//   * when the pages do not suffice, somebody is preempted: paused sequences first (a
//     reader that stalls may hold up nobody else), the youngest of them, then the
//     youngest of all. The oldest that can compute is never preempted, so it always makes
//     progress; one that is alone and still does not fit has filled the pool.
// Nothing here changes what a sequence computes, only when.
//
// Pure: no clock, thread or device; the members are scratch memory alone, so that a plan
// allocates nothing once the largest number of sequences has been seen.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_cost.h"
#include "engine/step_plan.h"
#include "renga/types.h"

namespace renga {

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
  int64_t pages = 0;       // Held.
  bool answering = false;  // At least one token was sampled.
  bool scores = false;     // Every prompt row's logits are wanted.
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
  // Fills `plan.rows` from those still in `active_`; returns the pages it needs.
  int64_t ChooseRows(std::span<const SequenceView> sequences, const StepCost& cost,
                     StepPlan& plan);
  int64_t AddRows(const SequenceView& view, int32_t index, int64_t rows, StepPlan& plan);
  // Takes the next victim out of `paused_` or `active_`; -1: only one active is left.
  int32_t TakeVictim();

  const SchedulerLimits limits_;
  std::vector<int32_t> active_;   // Can compute; oldest first.
  std::vector<int32_t> paused_;   // Hold pages; oldest first.
  std::vector<int32_t> prompts_;  // Of active_: to prefill, in order.
};

}  // namespace renga
