#include "engine/step_input.h"

#include <algorithm>

#include "base/check.h"
#include "engine/request_group.h"
#include "engine/sampler.h"

namespace renga {

StepInput::StepInput(const BackendLimits& limits)
    : most_specs_(
          static_cast<size_t>(std::max(limits.max_sequences, limits.max_logit_rows))) {
  entries_.reserve(static_cast<size_t>(limits.max_sequences));
  rows_.reserve(static_cast<size_t>(limits.max_sequences));
  tokens_.reserve(static_cast<size_t>(limits.max_rows));
  logit_rows_.reserve(static_cast<size_t>(limits.max_logit_rows));
  specs_.reserve(most_specs_);
  results_.reserve(most_specs_);
}

void StepInput::Clear() {
  entries_.clear();
  tokens_.clear();
  rows_.clear();
  logit_rows_.clear();
  specs_.clear();
  results_.clear();
  attended_ = 0;
}

void StepInput::Add(Sequence& sequence, int32_t rows, bool samples, bool decodes) {
  const int64_t first = sequence.computed();
  const size_t first_row = tokens_.size();
  rows_.push_back({.first_row = static_cast<int32_t>(first_row),
                   .rows = rows,
                   .first_position = static_cast<int32_t>(first),
                   .pages = sequence.page_table(),
                   .open_page = sequence.open_page()});
  const auto tokens =
      sequence.tokens().subspan(static_cast<size_t>(first), static_cast<size_t>(rows));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  attended_ += rows * first + int64_t{rows} * (rows + 1) / 2;

  StepEntry entry{.sequence = &sequence,
                  .rows = rows,
                  .samples = samples,
                  .decodes = decodes,
                  .first_score_row = first};
  if (sequence.scoring()) {
    // Of the prompt's last token only what comes after it is unknown.
    const int64_t end = std::min(first + rows, sequence.prompt_tokens() - 1);
    entry.scores = static_cast<size_t>(std::max<int64_t>(0, end - first));
    for (size_t i = 0; i < entry.scores; ++i) AddLogitRow(first_row + i);
  }
  if (samples && sequence.request().max_tokens > 0) {
    entry.draws = 1;
    AddLogitRow(tokens_.size() - 1);
  }
  entries_.push_back(entry);
}

void StepInput::Finish() {
  size_t spare = most_specs_ - std::min(most_specs_, logit_rows_.size());
  int32_t logit_row = 0;
  for (StepEntry& entry : entries_) {
    const Sequence& sequence = *entry.sequence;
    entry.first_spec = specs_.size();
    for (size_t i = 0; i < entry.scores; ++i) {
      const int64_t row = entry.first_score_row + static_cast<int64_t>(i);
      specs_.push_back(MakeScoreSpec(sequence, row, logit_row++));
    }
    if (entry.draws == 0) continue;
    specs_.push_back(MakeSampleSpec(sequence, logit_row));
    const size_t more = std::min(spare, static_cast<size_t>(sequence.group().unforked()));
    for (size_t i = 1; i <= more; ++i) {
      specs_.push_back(MakeSampleSpec(sequence.group().choices()[i], logit_row));
    }
    spare -= more;
    entry.draws += more;
    ++logit_row;
  }
  RENGA_CHECK(static_cast<size_t>(logit_row) == logit_rows_.size());
  results_.resize(specs_.size());
}

StepShape StepInput::shape() const {
  return {.rows = static_cast<int64_t>(tokens_.size()),
          .logit_rows = static_cast<int64_t>(logit_rows_.size()),
          .attended = attended_};
}

}  // namespace renga
