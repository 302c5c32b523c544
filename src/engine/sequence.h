// Sequence: one request inside the engine: its tokens, its pages and how far it came.
//
// Thread safety: none; the engine thread owns every sequence.
// Invariants: computed <= tokens; the pages cover at least `computed` positions; all of
// them are given back when the sequence is preempted or dies.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "batching/engine_request.h"
#include "engine/kv_pool.h"
#include "engine/scheduler.h"

namespace renga {

enum class SequencePlace {
  kWaiting,  // In the BatchWindow.
  kParked,   // Preempted while paused: waits for Resume, outside the window.
  kRunning,  // Admitted; holds pages or will.
};

class Sequence {
 public:
  // `age`: order of arrival in the engine.
  Sequence(EngineRequest request, uint64_t age);

  const EngineRequest& request() const { return request_; }
  RequestId id() const { return request_.id; }
  TokenSink& sink() { return *request_.sink; }
  uint64_t age() const { return age_; }

  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t generated() const {
    return static_cast<int64_t>(tokens_.size()) - prompt_tokens_;
  }
  std::span<const TokenId> tokens() const { return tokens_; }
  int64_t computed() const { return computed_; }
  // Positions still to compute before the next token can be sampled.
  int64_t uncomputed() const { return static_cast<int64_t>(tokens_.size()) - computed_; }
  std::span<const PageId> page_table() const { return page_table_; }
  int64_t pages() const { return static_cast<int64_t>(pages_.size()); }
  // Pages that the known tokens will need beyond those held.
  int64_t promised_pages() const;

  SequenceView View() const;

  // Room for everything that a running sequence will ever need, so that no step
  // allocates.
  void Reserve();
  // Takes pages for positions [0, end) from the pool; false if it ran out.
  bool GrowTo(int64_t end, KvPool& pool);
  // Gives all pages back and forgets what was computed; the tokens stay.
  void DropPages();
  void Advance(int64_t rows) { computed_ += rows; }
  void Append(TokenId token) { tokens_.push_back(token); }

  // ---- Written by the engine.
  SequencePlace place = SequencePlace::kWaiting;
  uint64_t batch = 0;
  bool paused = false;
  bool admitted_before = false;         // It left the wait queue's count.
  bool started = false;                 // OnStart was called.
  TimePoint taken{};                    // When the engine took it from the queue.
  std::optional<TimePoint> first_step;  // Start of the first step that computes for it.
  std::optional<TimePoint> first_token;
  TimePoint last_token{};
  Duration max_gap{};

 private:
  EngineRequest request_;  // Its prompt moved to tokens_.
  const uint64_t age_;
  std::vector<TokenId> tokens_;  // [prompt + generated]
  int64_t prompt_tokens_ = 0;
  int64_t computed_ = 0;
  std::vector<PageRef> pages_;
  std::vector<PageId> page_table_;  // [pages]
};

}  // namespace renga
