#include "engine/sequence.h"

#include <algorithm>
#include <utility>

#include "engine/request_group.h"

namespace renga {
namespace {

bool Penalises(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f;
}

}  // namespace

Sequence::Sequence(RequestGroup& group, std::vector<TokenId> prompt, int32_t choice,
                   uint64_t age)
    : group_(group),
      choice_(choice),
      age_(age),
      tokens_(std::move(prompt)),
      prompt_tokens_(static_cast<int64_t>(tokens_.size())) {}

const EngineRequest& Sequence::request() const { return group_.request(); }

bool Sequence::scoring() const { return choice_ == 0 && !group_.scores.complete(); }

int64_t Sequence::reusable_tokens() const {
  return scoring() ? group_.scores.known() : known_tokens() - 1;
}

int64_t Sequence::promised_pages() const {
  return std::max<int64_t>(0, PagesFor(known_tokens()) - pages());
}

SequenceView Sequence::View() const {
  return {.age = age_,
          .batch = batch,
          .tokens = known_tokens(),
          .computed = computed_,
          .pages = pages(),
          .answering = generated() > 0,
          .scores = scoring(),
          .paused = group_.paused};
}

int64_t Sequence::reserved_bytes() const {
  const int64_t all = prompt_tokens_ + request().max_tokens;
  size_t per_token = sizeof(TokenId);
  if (Penalises(request().sampling)) per_token += TokenHistory::kBytesPerToken;
  return static_cast<int64_t>(sizeof(Sequence)) + all * static_cast<int64_t>(per_token) +
         PagesFor(all) * static_cast<int64_t>(sizeof(PageRef) + sizeof(PageId));
}

void Sequence::Reserve() {
  const int64_t all = prompt_tokens_ + request().max_tokens;
  tokens_.reserve(static_cast<size_t>(all));
  page_refs_.reserve(static_cast<size_t>(PagesFor(all)));
  page_table_.reserve(static_cast<size_t>(PagesFor(all)));
  if (!Penalises(request().sampling)) return;
  history_.Reserve(all);
  for (const TokenId token : prompt()) history_.AddPrompt(token);
}

void Sequence::Advance(int64_t rows) {
  computed_ += rows;
  worked_ += rows;
}

void Sequence::Append(TokenId token) {
  tokens_.push_back(token);
  if (!history_.counts().empty()) history_.AddAnswer(token);
}

void Sequence::AddPage(PageRef page, int64_t filled) {
  page_table_.push_back(page.id());
  page_refs_.push_back(std::move(page));
  computed_ += filled;
}

void Sequence::RefreshPageTable(int64_t first) {
  for (size_t i = static_cast<size_t>(first); i < page_refs_.size(); ++i) {
    page_table_[i] = page_refs_[i].id();
  }
}

int64_t Sequence::DropOpenPage() {
  open_page_.Reset();
  const int64_t forgotten = computed_ % kPageTokens;
  computed_ -= forgotten;
  worked_ -= std::min(worked_, forgotten);
  return forgotten;
}

void Sequence::DropPages() {
  open_page_.Reset();
  page_refs_.clear();
  page_table_.clear();
  computed_ = 0;
  worked_ = 0;
  entered_pages = 0;
}

}  // namespace renga
