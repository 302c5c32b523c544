// PageStore: the KV pages of all sequences: the pool, the prefix cache, and how pages
// move between them.
//
// A page comes from the pool; when that is empty, the least recently used page that the
// prefix cache alone holds makes room. A sequence enters each page as soon as it is
// whole, so that requests that run at the same time already share, and the last, partly
// filled one when it gives its pages up (it ends or is preempted). Only computed
// positions are ever entered, so whatever a step that failed may have written is never
// seen by others.
//
// Where the device has open pages (int8), each sequence that computes holds one as well,
// from a pool of its own, as large as the number of sequences in a step. A closed page
// has no head that could be copied, so the cache keeps and gives whole pages alone, and a
// sequence that has to let its open page go (DropOpenPage) keeps its whole pages.
//
// A request with use_prefix_cache = false neither reads from the cache nor enters, but
// its own choices share its pages all the same.
//
// Thread safety: none; the engine thread's.
// Invariants: free + cached + used = total; open pages are free or held; every page that
// a sequence holds comes from here and goes back by Release (or dies with the sequence).

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv_pool.h"
#include "engine/prefix_cache.h"
#include "engine/sequence.h"
#include "renga/backend.h"

namespace renga {

class PageStore {
 public:
  // `sequences`: of a step, at most. `reuse`: false: nothing is cached. `backend` has its
  // KV pool, and copies pages.
  PageStore(int64_t pages, int64_t sequences, bool reuse, Backend& backend);

  // What of the sequence's known tokens is cached and may be taken.
  PrefixCache::Length Find(const Sequence& sequence) const;
  // Gives a sequence that has nothing of its own (worked() is 0) what is cached of its
  // tokens, in place of what it holds. Fails if the device can't copy.
  Status Take(Sequence& sequence);
  // Take would give more than the sequence holds. Cheap while nothing was entered since
  // it last looked.
  bool HasMore(Sequence& sequence) const;

  // Takes pages for positions [0, end), and an open page; false if there are none left.
  bool Grow(Sequence& sequence, int64_t end);
  // Enters the pages that are whole by now.
  void Enter(Sequence& sequence);
  // Enters what is computed and gives up all pages.
  void Release(Sequence& sequence);
  // Gives `to`, which holds nothing, the first `tokens` positions of `from`: whole pages
  // are shared, the rest is copied if a page can be had (else `to` computes it again).
  // REQUIRES: from.computed() >= tokens.
  Status Fork(const Sequence& from, int64_t tokens, Sequence& to);
  // Gives up all cached pages that no sequence holds; returns how many.
  int64_t Flush() { return cache_.Flush(); }

  // Pages that these sequences hold, each counted once.
  int64_t CountDistinct(std::span<const Sequence* const> sequences);

  // Open pages; 0 of them where the device has none.
  int64_t open_total() const { return open_pool_.total(); }
  int64_t open_free() const { return open_pool_.free(); }

  int64_t total() const { return pool_.total(); }
  int64_t free() const { return pool_.free(); }
  int64_t cached() const { return cache_.evictable(); }    // By the cache alone.
  int64_t available() const { return free() + cached(); }  // Free, or can be made so.
  int64_t used() const { return total() - available(); }   // By sequences.
  int64_t evictions() const {
    return evictions_;
  }  // Since the start; flushes left aside.
  int64_t cache_bytes() const { return cache_.bytes(); }  // Of bookkeeping.

 private:
  bool Shares(const Sequence& sequence) const;
  bool has_open_pages() const { return open_total() > 0; }
  // Of `tokens` positions those that the cache can keep or give.
  int64_t Cacheable(int64_t tokens) const {
    return has_open_pages() ? tokens - tokens % kPageTokens : tokens;
  }
  Status CopyHead(const Sequence& from, int64_t tokens, Sequence& to);
  PageRef Allocate();

  const bool reuse_;
  Backend& backend_;
  KvPool pool_;
  KvPool open_pool_;
  PrefixCache cache_;
  uint64_t entries_ = 1;  // Changes whenever something was entered.
  int64_t evictions_ = 0;
  std::vector<uint64_t> counted_in_;  // [pages] The last CountDistinct that saw it.
  uint64_t counts_ = 0;
};

}  // namespace renga
