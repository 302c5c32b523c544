#include "engine/sequence.h"

#include <algorithm>
#include <utility>

namespace renga {
Sequence::Sequence(EngineRequest request, uint64_t age)
    : request_(std::move(request)), age_(age), tokens_(std::move(request_.prompt)) {
  prompt_tokens_ = static_cast<int64_t>(tokens_.size());
}

int64_t Sequence::promised_pages() const {
  return std::max<int64_t>(0, PagesFor(static_cast<int64_t>(tokens_.size())) - pages());
}

SequenceView Sequence::View() const {
  return {.age = age_,
          .batch = batch,
          .tokens = static_cast<int64_t>(tokens_.size()),
          .computed = computed_,
          .pages = pages(),
          .answering = generated() > 0,
          .paused = paused};
}

void Sequence::Reserve() {
  const int64_t all = prompt_tokens_ + request_.max_tokens;
  tokens_.reserve(static_cast<size_t>(all));
  pages_.reserve(static_cast<size_t>(PagesFor(all)));
  page_table_.reserve(static_cast<size_t>(PagesFor(all)));
}

bool Sequence::GrowTo(int64_t end, KvPool& pool) {
  while (pages() < PagesFor(end)) {
    PageRef page = pool.Allocate();
    if (!page) return false;
    page_table_.push_back(page.id());
    pages_.push_back(std::move(page));
  }
  return true;
}

void Sequence::DropPages() {
  pages_.clear();
  page_table_.clear();
  computed_ = 0;
}

}  // namespace renga
