#include "engine/request_group.h"

#include <algorithm>
#include <utility>

namespace renga {

RequestGroup::RequestGroup(EngineRequest request, uint64_t age, TimePoint now)
    : taken(now), request_(std::move(request)), age_(age), live_(request_.n) {
  choices_.emplace_back(*this, std::move(request_.prompt), 0, age_);
  request_.prompt.clear();
  forked_ = request_.n == 1;
  if (request_.min_tokens > 0) {
    banned_ = request_.end_tokens;
    banned_.insert(banned_.end(), request_.stop_tokens.begin(),
                   request_.stop_tokens.end());
  }
  if (request_.prompt_logprobs >= 0) {
    scores.Reserve(prompt_tokens(), request_.prompt_logprobs);
  }
  reserved_bytes_ = ReservedBytes();
  booking_ = MemoryBooking(MemoryPurpose::kRequests, reserved_bytes_);
}

std::span<const TokenId> RequestGroup::banned(int64_t generated) const {
  if (generated >= request_.min_tokens) return {};
  return banned_;
}

void RequestGroup::Reserve() {
  for (int32_t i = 1; i < request_.n; ++i) {
    const std::span<const TokenId> prompt = first().prompt();
    Sequence& choice =
        choices_.emplace_back(*this, std::vector<TokenId>(prompt.begin(), prompt.end()),
                              i, age_ + static_cast<uint64_t>(i));
    choice.place = SequencePlace::kUnforked;
  }
  for (Sequence& choice : choices_) choice.Reserve();
}

void RequestGroup::NoteEnd(const Sequence& choice, const StopDecision& decision) {
  --live_;
  if (choice.choice() == 0) first_end_ = decision;
}

Usage RequestGroup::usage() const {
  Usage usage{.prompt_tokens = prompt_tokens(),
              .cached_tokens = cached_tokens,
              .completion_tokens = 0};
  for (const Sequence& choice : choices_) usage.completion_tokens += choice.generated();
  return usage;
}

RequestTimings RequestGroup::timings() const {
  RequestTimings timings;
  if (first_step) timings.queue = *first_step - request_.arrival;
  if (!prompt_done) return timings;
  timings.prefill = *prompt_done - *first_step;
  timings.decode = std::max(last_token, *prompt_done) - *prompt_done;
  for (const Sequence& choice : choices_) {
    timings.max_gap = std::max(timings.max_gap, choice.max_gap);
  }
  return timings;
}

int64_t RequestGroup::ReservedBytes() const {
  int64_t bytes =
      static_cast<int64_t>(sizeof(RequestGroup)) + request_.n * first().reserved_bytes();
  if (request_.prompt_logprobs >= 0) {
    const size_t each =
        sizeof(TokenLogprob) +
        static_cast<size_t>(request_.prompt_logprobs) * sizeof(TopLogprob);
    bytes += prompt_tokens() * static_cast<int64_t>(each);
  }
  return bytes;
}

}  // namespace renga
