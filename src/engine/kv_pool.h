// KvPool: who holds which page of the backend's KV pool.
//
// A page is an index; its bytes belong to the backend. Handles give themselves back, and
// a page may be shared by several handles: it is free again when the last one is gone.
//
// A watched page is one that somebody keeps in case it is wanted again (the prefix cache,
// by one handle): the watcher hears when others begin and cease to hold it, so that it
// knows at any time what it could give up without looking for it.
//
// Thread safety: none; only the engine thread touches the pool and its handles.
// Invariants: free + used = total at all times; a page is free or has at least one
// handle; a watched page is not free; the pool outlives its handles.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "renga/backend.h"

namespace renga {

class KvPool;

// Holds one page, or nothing.
class PageRef {
 public:
  PageRef() = default;
  ~PageRef() { Reset(); }
  PageRef(PageRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), page_(other.page_) {}
  PageRef& operator=(PageRef&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(page_, other.page_);
    return *this;
  }

  explicit operator bool() const { return pool_ != nullptr; }
  // REQUIRES: holds a page.
  PageId id() const;
  // Another handle to the same page. REQUIRES: holds a page.
  PageRef Share() const;
  void Reset();

 private:
  friend class KvPool;
  PageRef(KvPool* pool, PageId page) : pool_(pool), page_(page) {}

  KvPool* pool_ = nullptr;
  PageId page_ = -1;
};

// Hears of the watched pages of a pool, inside the call that changes them. It may not
// call the pool, take or drop a handle.
class PageWatcher {
 public:
  virtual void OnShared(PageId page) = 0;    // From one handle to two.
  virtual void OnUnshared(PageId page) = 0;  // From two handles to one.

 protected:
  ~PageWatcher() = default;
};

class KvPool {
 public:
  explicit KvPool(int64_t pages);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  // A page nobody holds; an empty handle if there is none.
  PageRef Allocate();

  // One watcher at a time; null: none. REQUIRES: no page is watched.
  void SetWatcher(PageWatcher* watcher);
  // From here on the watcher hears of `page`, which somebody holds.
  // REQUIRES: there is a watcher; the page is held, and not watched.
  void Watch(PageId page);
  // REQUIRES: the page is watched.
  void Unwatch(PageId page);

  int64_t total() const { return static_cast<int64_t>(references_.size()); }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int64_t used() const { return total() - free(); }
  int32_t references(PageId page) const {
    return references_.at(static_cast<size_t>(page));
  }

 private:
  friend class PageRef;
  void AddReference(PageId page);
  void DropReference(PageId page);

  std::vector<int32_t> references_;  // [total]
  std::vector<uint8_t> watched_;     // [total] 0 or 1
  int64_t watched_pages_ = 0;
  PageWatcher* watcher_ = nullptr;
  std::vector<PageId> free_;  // Last given back is first handed out: it is warm.
};

}  // namespace renga
