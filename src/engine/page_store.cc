#include "engine/page_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "batching/engine_request.h"

namespace renga {

PageStore::PageStore(int64_t pages, int64_t sequences, bool reuse, Backend& backend)
    : reuse_(reuse),
      backend_(backend),
      pool_(pages),
      open_pool_(backend.open_page_bytes() > 0 ? sequences : 0),
      cache_(pool_),
      counted_in_(static_cast<size_t>(pages), 0) {}

bool PageStore::Shares(const Sequence& sequence) const {
  return reuse_ && sequence.request().use_prefix_cache;
}

PrefixCache::Length PageStore::Find(const Sequence& sequence) const {
  if (!Shares(sequence)) return {};
  PrefixCache::Length found = cache_.Find(sequence.request().cache_salt,
                                          sequence.tokens(), sequence.reusable_tokens());
  found.tokens = Cacheable(found.tokens);
  return found;
}

bool PageStore::HasMore(Sequence& sequence) const {
  if (std::exchange(sequence.looked_at, entries_) == entries_) return false;
  return Find(sequence).tokens > sequence.computed();
}

Status PageStore::Take(Sequence& sequence) {
  RENGA_CHECK(sequence.worked() == 0);
  sequence.looked_at = entries_;
  if (!Shares(sequence)) return OkStatus();
  PrefixCache::Match match = cache_.Take(sequence.request().cache_salt, sequence.tokens(),
                                         sequence.reusable_tokens());
  sequence.DropPages();
  for (PageRef& page : match.pages) sequence.AddPage(std::move(page), kPageTokens);
  sequence.entered_pages = sequence.pages();
  if (!match.head || has_open_pages()) return OkStatus();
  PageRef page = Allocate();
  if (!page) return OkStatus();  // The planner decides who gives one up, if anybody.
  RENGA_RETURN_IF_ERROR(
      backend_.CopyPageHead(match.head.id(), page.id(), match.head_tokens));
  sequence.AddPage(std::move(page), match.head_tokens);
  return OkStatus();
}

PageRef PageStore::Allocate() {
  PageRef page = pool_.Allocate();
  if (page || !cache_.Evict()) return page;
  ++evictions_;
  return pool_.Allocate();
}

bool PageStore::Grow(Sequence& sequence, int64_t end) {
  while (sequence.pages() < PagesFor(end)) {
    PageRef page = Allocate();
    if (!page) return false;
    sequence.AddPage(std::move(page), 0);
  }
  if (!has_open_pages() || sequence.open_page() >= 0) return true;
  sequence.TakeOpenPage(open_pool_.Allocate());
  return sequence.open_page() >= 0;
}

void PageStore::Enter(Sequence& sequence) {
  const int64_t whole = sequence.computed() / kPageTokens;
  if (whole <= sequence.entered_pages || !Shares(sequence)) return;
  cache_.Insert(sequence.request().cache_salt,
                sequence.tokens().first(static_cast<size_t>(whole * kPageTokens)),
                sequence.page_refs().first(static_cast<size_t>(whole)),
                static_cast<size_t>(sequence.entered_pages));
  sequence.RefreshPageTable(sequence.entered_pages);
  sequence.entered_pages = whole;
  ++entries_;
}

void PageStore::Release(Sequence& sequence) {
  const int64_t computed = Cacheable(sequence.computed());
  if (computed > sequence.entered_pages * kPageTokens && Shares(sequence)) {
    cache_.Insert(sequence.request().cache_salt,
                  sequence.tokens().first(static_cast<size_t>(computed)),
                  sequence.page_refs().first(static_cast<size_t>(PagesFor(computed))),
                  static_cast<size_t>(sequence.entered_pages));
    ++entries_;
  }
  sequence.DropPages();
}

Status PageStore::Fork(const Sequence& from, int64_t tokens, Sequence& to) {
  RENGA_CHECK(from.computed() >= tokens && to.pages() == 0);
  const int64_t whole = tokens / kPageTokens;
  for (int64_t i = 0; i < whole; ++i) {
    to.AddPage(from.page_refs()[static_cast<size_t>(i)].Share(), kPageTokens);
  }
  to.entered_pages = std::min(from.entered_pages, whole);
  return tokens % kPageTokens == 0 ? OkStatus() : CopyHead(from, tokens, to);
}

// Of `tokens` positions those of the last, partly filled page, whose predecessors `to`
// holds.
Status PageStore::CopyHead(const Sequence& from, int64_t tokens, Sequence& to) {
  const int64_t whole = tokens / kPageTokens;
  PageRef open_page;
  if (has_open_pages()) {
    // In its open page a sequence has the chunk that it is at, and no other.
    if (from.open_page() < 0 || from.computed() / kPageTokens != whole) return OkStatus();
    open_page = open_pool_.Allocate();
    if (!open_page) return OkStatus();
  }
  PageRef page = Allocate();
  if (!page) return OkStatus();
  const int32_t rest = static_cast<int32_t>(tokens % kPageTokens);
  const PageId source =
      open_page ? from.open_page() : from.page_table()[static_cast<size_t>(whole)];
  RENGA_RETURN_IF_ERROR(
      backend_.CopyPageHead(source, open_page ? open_page.id() : page.id(), rest));
  to.AddPage(std::move(page), rest);
  if (open_page) to.TakeOpenPage(std::move(open_page));
  return OkStatus();
}

int64_t PageStore::CountDistinct(std::span<const Sequence* const> sequences) {
  ++counts_;
  int64_t distinct = 0;
  for (const Sequence* sequence : sequences) {
    for (const PageId page : sequence->page_table()) {
      if (std::exchange(counted_in_[static_cast<size_t>(page)], counts_) != counts_) {
        ++distinct;
      }
    }
  }
  return distinct;
}

}  // namespace renga
