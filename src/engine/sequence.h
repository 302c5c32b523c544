// Sequence: one choice of a request inside the engine: its tokens, its pages and how far
// it came.
//
// Its life: kWaiting -> kRunning -> kEnded, with kRunning -> kWaiting (preempted) or
// kRunning -> kParked -> kWaiting (preempted while its request is paused) any number of
// times between. The choices after the first are kUnforked until choice 0 has computed
// the prompt for all, and kRunning from then on.
//
// Thread safety: none; the engine thread owns every sequence.
// Invariants: computed <= tokens; the pages cover at least `computed` positions; the
// first `entered_pages` of them are the prefix cache's; page_table()[i] is the id of
// page_refs()[i]; without an open page, where there are such, `computed` ends with a
// whole page; all pages are given back when the sequence is preempted or ends.

#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/kv_pool.h"
#include "engine/scheduler.h"
#include "engine/token_history.h"
#include "renga/request.h"

namespace renga {

class RequestGroup;
struct EngineRequest;

enum class SequencePlace {
  kUnforked,  // Waits for choice 0 to compute the prompt; holds nothing.
  kWaiting,   // In the BatchWindow.
  kParked,    // Preempted while paused: waits for Resume, outside the window.
  kRunning,   // Admitted; holds pages or will.
  kEnded,     // Holds nothing any more.
};

class Sequence {
 public:
  // `age`: order of arrival in the engine; the choices of one request follow one another.
  Sequence(RequestGroup& group, std::vector<TokenId> prompt, int32_t choice,
           uint64_t age);

  RequestGroup& group() { return group_; }
  const RequestGroup& group() const { return group_; }
  const EngineRequest& request() const;
  int32_t choice() const { return choice_; }
  uint64_t age() const { return age_; }

  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t known_tokens() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t generated() const { return known_tokens() - prompt_tokens_; }
  std::span<const TokenId> tokens() const { return tokens_; }
  std::span<const TokenId> prompt() const {
    return tokens().first(static_cast<size_t>(prompt_tokens_));
  }
  // What the penalties see; empty if all are off.
  std::span<const TokenCount> history() const { return history_.counts(); }

  // Positions in the pages.
  int64_t computed() const { return computed_; }
  // Positions still to compute before the next token can be sampled.
  int64_t uncomputed() const { return known_tokens() - computed_; }
  // Of `computed`, those that it computed itself since it last held nothing.
  int64_t worked() const { return worked_; }
  // Positions that may come from elsewhere: the last known token is always computed, and
  // so is every row of a prompt whose score is wanted and not known.
  int64_t reusable_tokens() const;
  // Rows of the prompt have scores that are wanted and not known.
  bool scoring() const;
  SequenceView View() const;

  // Room for everything that a running sequence will ever need, so that no step
  // allocates.
  void Reserve();
  int64_t reserved_bytes() const;
  void Advance(int64_t rows);
  void Append(TokenId token);

  // ---- Pages; PageStore moves them.
  std::span<const PageId> page_table() const { return page_table_; }
  int64_t pages() const { return static_cast<int64_t>(page_refs_.size()); }
  // Pages that the known tokens will need beyond those held.
  int64_t promised_pages() const;
  std::span<PageRef> page_refs() { return page_refs_; }
  std::span<const PageRef> page_refs() const { return page_refs_; }
  // Page number pages(); its first `filled` positions hold what this sequence would have
  // computed there. REQUIRES: everything before it is computed, unless `filled` is 0.
  void AddPage(PageRef page, int64_t filled);
  // The open page, for devices that have them (HasOpenPages); -1: none is held.
  PageId open_page() const { return open_page_ ? open_page_.id() : -1; }
  // REQUIRES: none is held. It holds what this sequence would have computed since its
  // last whole page.
  void TakeOpenPage(PageRef page) { open_page_ = std::move(page); }
  // Gives the open page back, and forgets what was computed in it; returns how much.
  int64_t DropOpenPage();
  // After pages from number `first` on were replaced.
  void RefreshPageTable(int64_t first);
  // Gives all pages back and forgets what was computed; the tokens stay.
  void DropPages();
  int64_t entered_pages = 0;

  // ---- Written by the engine.
  SequencePlace place = SequencePlace::kWaiting;
  uint64_t batch = 0;
  int64_t lost = 0;         // Computed when it was last preempted.
  uint64_t looked_at = 0;   // State of the prefix cache when it last looked there.
  TimePoint first_token{};  // Of this choice.
  TimePoint last_token{};
  Duration max_gap{};
  TimePoint max_gap_end{};  // When that was over.

 private:
  RequestGroup& group_;
  const int32_t choice_;
  const uint64_t age_;
  std::vector<TokenId> tokens_;  // [prompt + generated]
  const int64_t prompt_tokens_;
  TokenHistory history_;
  int64_t computed_ = 0;
  int64_t worked_ = 0;
  std::vector<PageRef> page_refs_;
  std::vector<PageId> page_table_;  // [pages]
  PageRef open_page_;
};

}  // namespace renga
