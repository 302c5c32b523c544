#include "engine/kv_pool.h"

#include "base/check.h"

namespace renga {

PageId PageRef::id() const {
  RENGA_CHECK(pool_ != nullptr);
  return page_;
}

PageRef PageRef::Share() const {
  RENGA_CHECK(pool_ != nullptr);
  pool_->AddReference(page_);
  return PageRef(pool_, page_);
}

void PageRef::Reset() {
  if (pool_ == nullptr) return;
  std::exchange(pool_, nullptr)->DropReference(page_);
}

KvPool::KvPool(int64_t pages)
    : references_(static_cast<size_t>(pages), 0),
      watched_(static_cast<size_t>(pages), 0) {
  free_.reserve(references_.size());
  for (int64_t page = pages - 1; page >= 0; --page) {
    free_.push_back(static_cast<PageId>(page));
  }
}

KvPool::~KvPool() { RENGA_CHECK(used() == 0); }

PageRef KvPool::Allocate() {
  if (free_.empty()) return PageRef();
  const PageId page = free_.back();
  free_.pop_back();
  int32_t& references = references_[static_cast<size_t>(page)];
  RENGA_CHECK(references == 0);
  references = 1;
  return PageRef(this, page);
}

void KvPool::SetWatcher(PageWatcher* watcher) {
  RENGA_CHECK(watched_pages_ == 0);
  watcher_ = watcher;
}

void KvPool::Watch(PageId page) {
  RENGA_CHECK(watcher_ != nullptr && references(page) > 0);
  RENGA_CHECK(watched_[static_cast<size_t>(page)] == 0);
  watched_[static_cast<size_t>(page)] = 1;
  ++watched_pages_;
}

void KvPool::Unwatch(PageId page) {
  RENGA_CHECK(watched_.at(static_cast<size_t>(page)) == 1);
  watched_[static_cast<size_t>(page)] = 0;
  --watched_pages_;
}

void KvPool::AddReference(PageId page) {
  int32_t& references = references_[static_cast<size_t>(page)];
  RENGA_CHECK(references > 0);
  if (++references == 2 && watched_[static_cast<size_t>(page)] != 0) {
    watcher_->OnShared(page);
  }
}

void KvPool::DropReference(PageId page) {
  int32_t& references = references_[static_cast<size_t>(page)];
  RENGA_CHECK(references > 0);  // Else it was given back twice.
  --references;
  if (watched_[static_cast<size_t>(page)] != 0) {
    RENGA_CHECK(references > 0);
    if (references == 1) watcher_->OnUnshared(page);
  }
  if (references == 0) free_.push_back(page);
}

}  // namespace renga
