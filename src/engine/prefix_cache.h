// PrefixCache: pages of earlier requests, found again by their token ids.
//
// A tree per namespace: a node is one page, its key the token ids in it (64, or fewer in
// the last page of a request that has ended), its parent the page before. Token ids are
// compared in full. A whole page is shared by reference; of the page after the last whole
// match the common head can be copied (Backend::CopyPageHead), so that reuse is exact to
// the token.
//
// Who holds what: a node holds its page by one reference; sequences that use the page
// hold more. A node whose page has no other holder is evictable; the least recently used
// one without children goes first, when the pool is empty and somebody calls Evict. A
// page is in use as long as somebody holds it, so recency begins when the last one lets
// go. Invariant: whoever holds a node's page holds those of all its ancestors (a match as
// a whole; a sequence, as Insert gives it the tree's page in place of its own equal one;
// lets them go together). So every evictable node can be evicted, children first.
// A partly filled page has no children and serves as a head alone; it is not kept beside
// a page that begins with all of its tokens, as it can serve nothing that this one can't.
//
// Thread safety: none; the engine thread's. Cost: O(pages of the prompt * log(siblings)),
// a change of holders O(1). The tree takes its memory at construction (about 400 bytes a
// page of the pool), except for the names of the namespaces that hold pages now.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/kv_pool.h"
#include "renga/types.h"

namespace renga {

class PrefixCache {
 public:
  // What of a prompt is cached.
  struct Match {
    std::vector<PageRef> pages;  // Whole pages, shared: 64 tokens each.
    PageRef head;                // Held while its head is copied; empty: no such page.
    int32_t head_tokens = 0;     // Of `head` that continue the match.
    int64_t tokens() const;      // All of them together.
  };
  // The same, without taking anything.
  struct Length {
    int64_t tokens = 0;
    int64_t held_pages = 0;  // Whole pages of the match that sequences hold already.
  };

  explicit PrefixCache(KvPool& pool);
  ~PrefixCache();

  // The longest match of at most `limit` tokens in the namespace `salt`. Find changes
  // nothing; Take makes the match the most recently used one.
  Length Find(std::string_view salt, std::span<const TokenId> tokens,
              int64_t limit) const;
  Match Take(std::string_view salt, std::span<const TokenId> tokens, int64_t limit);

  // Enters the pages of a sequence: page i holds tokens [64 i, 64 i + 64) of `tokens`;
  // the last one may be partly filled, and may not be written any more. Where the tree
  // has an equal page already, `pages[i]` is replaced by that one (its bits are the
  // same). Entering what is known costs one look per page from `first_page` on; the pages
  // before it must have been entered by the same sequence.
  void Insert(std::string_view salt, std::span<const TokenId> tokens,
              std::span<PageRef> pages, size_t first_page = 0);

  // Gives up the least recently used evictable page; false if there is none.
  bool Evict();
  // Gives up all evictable pages; returns how many.
  int64_t Flush();

  int64_t pages() const;      // Nodes.
  int64_t evictable() const;  // Of these, held by nobody else.
  int64_t bytes() const;      // Of its own bookkeeping, about.

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace renga
