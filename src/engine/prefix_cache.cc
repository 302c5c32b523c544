// How it is kept: node i stands for page i of the pool, so that a page finds its node
// without a look-up, and nodes need no memory of their own. Siblings are a set in
// lexicographic order of their tokens: the sibling with the longest head in common with
// some tokens is always a neighbour of the place where those would stand. The entries of
// the sets are made once, in `spare_`, and wander between the sets.
//
// Evictable nodes form one list in order of last use, in which a node stands behind all
// its descendants; so the first of the list has no children.

#include "engine/prefix_cache.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "renga/backend.h"

namespace renga {
namespace {

using Tokens = std::span<const TokenId>;

constexpr PageId kNone = -1;

int32_t CommonHead(Tokens a, Tokens b) {
  return static_cast<int32_t>(
      std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// Of the page that begins at `first`, what `tokens` has of it.
Tokens PageOf(Tokens tokens, size_t page) {
  const size_t first = page * kPageTokens;
  return tokens.subspan(first, std::min<size_t>(kPageTokens, tokens.size() - first));
}

Tokens AtMost(Tokens tokens, int64_t limit) {
  const int64_t size = static_cast<int64_t>(tokens.size());
  return tokens.first(static_cast<size_t>(std::clamp<int64_t>(limit, 0, size)));
}

}  // namespace

struct PrefixCache::Impl final : public PageWatcher {
  // Orders pages by their tokens; a head of another page comes before that one.
  struct ByTokens {
    using is_transparent = void;
    const Impl* impl;
    bool operator()(PageId a, PageId b) const {
      return Less(impl->TokensOf(a), impl->TokensOf(b));
    }
    bool operator()(PageId a, Tokens b) const { return Less(impl->TokensOf(a), b); }
    bool operator()(Tokens a, PageId b) const { return Less(a, impl->TokensOf(b)); }
    static bool Less(Tokens a, Tokens b) {
      return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
    }
  };
  using Siblings = std::set<PageId, ByTokens>;
  using Spaces = std::map<std::string, Siblings, std::less<>>;

  struct Node {
    explicit Node(const Impl* impl) : children(ByTokens{impl}) {}

    PageRef page;      // Empty: the page is not in the tree.
    int32_t size = 0;  // Tokens.
    PageId parent = kNone;
    Spaces::iterator space;
    Siblings children;
    Siblings::iterator place;  // In its parent's children, or the namespace's.
    // Neighbours in the list of evictable nodes.
    PageId older = kNone;
    PageId newer = kNone;
  };

  // The part of a page in the tree that goes on with some tokens.
  struct Step {
    PageId page = kNone;
    int32_t tokens = 0;
  };

  explicit Impl(KvPool& pool_in);
  ~Impl();

  void OnShared(PageId page) override { Unlist(page); }
  void OnUnshared(PageId page) override { List(page); }

  Node& At(PageId page) { return nodes[static_cast<size_t>(page)]; }
  const Node& At(PageId page) const { return nodes[static_cast<size_t>(page)]; }
  bool Contains(PageId page) const { return static_cast<bool>(At(page).page); }
  bool Whole(PageId page) const { return At(page).size == kPageTokens; }
  bool Evictable(PageId page) const { return pool.references(page) == 1; }
  Tokens TokensOf(PageId page) const {
    return Tokens(tokens).subspan(static_cast<size_t>(page) * kPageTokens,
                                  static_cast<size_t>(At(page).size));
  }
  Siblings& SiblingsOf(const Node& node) {
    return node.parent == kNone ? node.space->second : At(node.parent).children;
  }

  Step Best(const Siblings& siblings, Tokens wanted) const;
  template <class OnPage>
  Step Walk(std::string_view salt, Tokens wanted, OnPage on_page) const;

  Spaces::iterator SpaceOf(std::string_view salt);
  void Add(PageId parent, Spaces::iterator space, Siblings::iterator before,
           const PageRef& page, Tokens of_page);
  void Remove(PageId page);
  PageId Enter(PageId parent, Spaces::iterator space, Tokens of_page, PageRef& page);

  void List(PageId page);
  void Unlist(PageId page);

  KvPool& pool;
  std::vector<TokenId> tokens;  // [pages of the pool][64]
  std::vector<Node> nodes;      // [pages of the pool]
  std::vector<Siblings::node_type> spare;
  Spaces spaces;  // Those with pages, and the one without a name.
  int64_t used = 0;
  int64_t evictable = 0;
  int64_t name_bytes = 0;
  PageId oldest = kNone;
  PageId newest = kNone;
};

// ---- The tree ------------------------------------------------------------------------

PrefixCache::Impl::Impl(KvPool& pool_in)
    : pool(pool_in), tokens(static_cast<size_t>(pool_in.total()) * kPageTokens) {
  const size_t pages = static_cast<size_t>(pool.total());
  nodes.reserve(pages);
  spare.reserve(pages);
  for (size_t i = 0; i < pages; ++i) {
    nodes.emplace_back(this);
    Siblings maker(ByTokens{this});
    maker.insert(static_cast<PageId>(i));
    spare.push_back(maker.extract(maker.begin()));
  }
  spaces.emplace(std::string(), Siblings(ByTokens{this}));
  pool.SetWatcher(this);
}

PrefixCache::Impl::~Impl() {
  for (Node& node : nodes) {
    if (!node.page) continue;
    pool.Unwatch(node.page.id());
    node.page.Reset();
  }
  pool.SetWatcher(nullptr);
}

// The longest head of `wanted` that one of `siblings` begins with.
PrefixCache::Impl::Step PrefixCache::Impl::Best(const Siblings& siblings,
                                                Tokens wanted) const {
  Step best;
  const auto consider = [&](PageId page) {
    const int32_t common = CommonHead(TokensOf(page), wanted);
    if (common > best.tokens) best = {.page = page, .tokens = common};
  };
  const auto after = siblings.lower_bound(wanted);
  if (after != siblings.end()) consider(*after);
  if (after != siblings.begin()) consider(*std::prev(after));
  return best;
}

// Calls on_page for each whole page that matches, first to last; returns the head of the
// next one.
template <class OnPage>
PrefixCache::Impl::Step PrefixCache::Impl::Walk(std::string_view salt, Tokens wanted,
                                                OnPage on_page) const {
  const auto space = spaces.find(salt);
  if (space == spaces.end()) return {};
  const Siblings* siblings = &space->second;
  for (size_t i = 0; i * kPageTokens < wanted.size(); ++i) {
    const Step step = Best(*siblings, PageOf(wanted, i));
    if (step.tokens < kPageTokens) return step;
    on_page(step.page);
    siblings = &At(step.page).children;
  }
  return {};
}

PrefixCache::Impl::Spaces::iterator PrefixCache::Impl::SpaceOf(std::string_view salt) {
  const auto found = spaces.find(salt);
  if (found != spaces.end()) return found;
  name_bytes += static_cast<int64_t>(salt.size());
  return spaces.emplace(std::string(salt), Siblings(ByTokens{this})).first;
}

void PrefixCache::Impl::Add(PageId parent, Spaces::iterator space,
                            Siblings::iterator before, const PageRef& page,
                            Tokens of_page) {
  Node& node = At(page.id());
  RENGA_CHECK(!node.page && node.children.empty());
  std::copy(of_page.begin(), of_page.end(),
            tokens.begin() + static_cast<std::ptrdiff_t>(page.id()) * kPageTokens);
  node.size = static_cast<int32_t>(of_page.size());
  node.parent = parent;
  node.space = space;
  Siblings::node_type entry = std::move(spare.back());
  spare.pop_back();
  entry.value() = page.id();
  node.place = SiblingsOf(node).insert(before, std::move(entry));
  node.page = page.Share();
  pool.Watch(page.id());  // Held by the sequence too: not yet in the list.
  ++used;
}

// REQUIRES: the page is evictable and without children.
void PrefixCache::Impl::Remove(PageId page) {
  Node& node = At(page);
  RENGA_CHECK(node.children.empty());  // Else somebody held it without its parent.
  Unlist(page);
  Siblings& siblings = SiblingsOf(node);
  spare.push_back(siblings.extract(node.place));
  if (node.parent == kNone && siblings.empty() && !node.space->first.empty()) {
    name_bytes -= static_cast<int64_t>(node.space->first.size());
    spaces.erase(node.space);
  }
  pool.Unwatch(page);
  node.page.Reset();
  --used;
}

// Enters a page below `parent`, or swaps it for the equal one; returns the one that is in
// the tree.
PageId PrefixCache::Impl::Enter(PageId parent, Spaces::iterator space, Tokens of_page,
                                PageRef& page) {
  Siblings& siblings = parent == kNone ? space->second : At(parent).children;
  const auto place = siblings.lower_bound(of_page);
  const bool known = place != siblings.end() && CommonHead(TokensOf(*place), of_page) ==
                                                    static_cast<int32_t>(of_page.size());
  if (known) {
    PageRef same = At(*place).page.Share();  // Its content is in use now.
    if (of_page.size() == kPageTokens && *place != page.id()) page = std::move(same);
    return *place;
  }
  Add(parent, space, place, page, of_page);
  const auto added = At(page.id()).place;
  if (added != siblings.begin()) {
    const PageId before = *std::prev(added);
    const Tokens head = TokensOf(before);
    const bool useless = CommonHead(head, of_page) == static_cast<int32_t>(head.size());
    if (useless && Evictable(before)) Remove(before);
  }
  return page.id();
}

// ---- The list of evictable nodes -----------------------------------------------------

// As the most recently used one. A parent that was let go a moment ago, by the same
// holder, stays behind its child.
void PrefixCache::Impl::List(PageId page) {
  Node& node = At(page);
  const bool before_parent = node.parent != kNone && Evictable(node.parent);
  node.newer = before_parent ? node.parent : kNone;
  PageId& behind = before_parent ? At(node.parent).older : newest;
  node.older = behind;
  behind = page;
  (node.older == kNone ? oldest : At(node.older).newer) = page;
  ++evictable;
}

void PrefixCache::Impl::Unlist(PageId page) {
  Node& node = At(page);
  (node.older == kNone ? oldest : At(node.older).newer) = node.newer;
  (node.newer == kNone ? newest : At(node.newer).older) = node.older;
  node.older = node.newer = kNone;
  --evictable;
}

// ---- PrefixCache ---------------------------------------------------------------------

int64_t PrefixCache::Match::tokens() const {
  return static_cast<int64_t>(pages.size()) * kPageTokens + head_tokens;
}

PrefixCache::PrefixCache(KvPool& pool) : impl_(std::make_unique<Impl>(pool)) {}
PrefixCache::~PrefixCache() = default;

PrefixCache::Length PrefixCache::Find(std::string_view salt, Tokens tokens,
                                      int64_t limit) const {
  Length length;
  const Impl::Step head = impl_->Walk(salt, AtMost(tokens, limit), [&](PageId page) {
    length.tokens += kPageTokens;
    if (!impl_->Evictable(page)) ++length.held_pages;
  });
  length.tokens += head.tokens;
  return length;
}

PrefixCache::Match PrefixCache::Take(std::string_view salt, Tokens tokens,
                                     int64_t limit) {
  Match match;
  const Impl::Step head = impl_->Walk(salt, AtMost(tokens, limit), [&](PageId page) {
    match.pages.push_back(impl_->At(page).page.Share());
  });
  if (head.tokens > 0) {
    match.head = impl_->At(head.page).page.Share();
    match.head_tokens = head.tokens;
  }
  return match;
}

void PrefixCache::Insert(std::string_view salt, Tokens tokens, std::span<PageRef> pages,
                         size_t first_page) {
  const size_t count = static_cast<size_t>(PagesFor(static_cast<int64_t>(tokens.size())));
  RENGA_CHECK(count <= pages.size());
  if (first_page >= count) return;
  PageId parent = kNone;
  if (first_page > 0) {
    parent = pages[first_page - 1].id();
    RENGA_CHECK(impl_->Contains(parent) && impl_->Whole(parent));
  }
  const auto space = parent == kNone ? impl_->SpaceOf(salt) : impl_->At(parent).space;
  for (size_t i = first_page; i < count; ++i) {
    parent = impl_->Enter(parent, space, PageOf(tokens, i), pages[i]);
  }
}

bool PrefixCache::Evict() {
  const PageId page = impl_->oldest;
  if (page == kNone) return false;
  impl_->Remove(page);
  return true;
}

int64_t PrefixCache::Flush() {
  int64_t given_up = 0;
  while (Evict()) ++given_up;
  return given_up;
}

int64_t PrefixCache::pages() const { return impl_->used; }
int64_t PrefixCache::evictable() const { return impl_->evictable; }

int64_t PrefixCache::bytes() const {
  // An entry of a set: three links, a colour and the page.
  constexpr int64_t kPerPage = kPageTokens * sizeof(TokenId) + sizeof(Impl::Node) +
                               sizeof(Impl::Siblings::node_type) + 5 * sizeof(void*);
  constexpr int64_t kPerSpace = sizeof(Impl::Spaces::value_type) + 4 * sizeof(void*);
  return static_cast<int64_t>(sizeof(Impl)) + impl_->pool.total() * kPerPage +
         static_cast<int64_t>(impl_->spaces.size()) * kPerSpace + impl_->name_bytes;
}

}  // namespace renga
