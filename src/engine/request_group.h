// RequestGroup: one request inside the engine, with the sequences of its n choices.
//
// The prompt is computed once, by choice 0. When its last row is there, the first token
// of every choice is sampled from it, and the others are forked: they share the whole
// pages and get a copy of the last one. From then on each is a sequence like any other.
//
// What belongs to the request as a whole is here (its sink, whether it is paused, when it
// began), what belongs to one answer is in its Sequence.
//
// Thread safety: none; the engine thread owns every group.
// Invariants: the choices never move; before Fork was noted only choice 0 can be anywhere
// but at kUnforked; `live()` counts the choices that have not ended.

#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/memory_ledger.h"
#include "batching/engine_request.h"
#include "engine/prompt_scores.h"
#include "engine/sequence.h"
#include "engine/stop_rules.h"

namespace renga {

class RequestGroup {
 public:
  // `age`: that of choice 0; the others follow it one by one. REQUIRES: n >= 1.
  RequestGroup(EngineRequest request, uint64_t age, TimePoint now);
  RequestGroup(const RequestGroup&) = delete;
  RequestGroup& operator=(const RequestGroup&) = delete;

  // Its prompt is empty: it is the choices' now.
  const EngineRequest& request() const { return request_; }
  RequestId id() const { return request_.id; }
  TokenSink& sink() { return *request_.sink; }
  int64_t prompt_tokens() const { return first().prompt_tokens(); }
  // Tokens that a choice with so many generated ones may not draw next (min_tokens).
  std::span<const TokenId> banned(int64_t generated) const;

  Sequence& first() { return choices_.front(); }
  const Sequence& first() const { return choices_.front(); }
  // Choice 0 alone until Reserve.
  std::deque<Sequence>& choices() { return choices_; }
  const std::deque<Sequence>& choices() const { return choices_; }

  // Makes the other choices, and room for all that the request will ever need.
  void Reserve();

  // Choices that still wait for choice 0, whether they exist yet or not.
  int32_t unforked() const { return forked_ ? 0 : request_.n - 1; }
  void NoteForked() { forked_ = true; }

  int32_t live() const { return live_; }
  // One of the choices has ended by itself.
  void NoteEnd(const Sequence& choice, const StopDecision& decision);
  // How choice 0 ended.
  const StopDecision& first_end() const { return first_end_; }

  // What a request holds once it runs; booked for its whole life.
  int64_t reserved_bytes() const { return reserved_bytes_; }

  Usage usage() const;
  RequestTimings timings() const;

  // ---- Written by the engine.
  bool paused = false;
  TimePoint paused_at{};                 // When that began.
  bool admitted = false;                 // It left the wait queue's count.
  bool started = false;                  // OnStart was called.
  int32_t running = 0;                   // Choices at kRunning.
  int64_t cached_tokens = 0;             // Of the prompt, when it was first computed for.
  const TimePoint taken;                 // When the engine took it from the queue.
  TimePoint admitted_at{};               // Since then it holds its places.
  std::optional<TimePoint> first_step;   // Start of the first step that computes for it.
  std::optional<TimePoint> prompt_done;  // End of the step that completed the prompt.
  TimePoint last_token{};                // Of any choice.
  PromptScores scores;

 private:
  int64_t ReservedBytes() const;

  EngineRequest request_;
  const uint64_t age_;
  std::vector<TokenId> banned_;  // End and stop tokens, if min_tokens is set.
  std::deque<Sequence> choices_;
  bool forked_ = false;
  int32_t live_;
  StopDecision first_end_;
  int64_t reserved_bytes_ = 0;
  MemoryBooking booking_;
};

}  // namespace renga
