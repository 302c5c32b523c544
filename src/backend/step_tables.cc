// See step_tables.h.

#include "backend/step_tables.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/status_macros.h"

namespace renga {

namespace {

std::string Numbers(int64_t a, const char* between, int64_t b) {
  return std::to_string(a) + between + std::to_string(b);
}

}  // namespace

StepTables::StepTables(const Limits& limits) : limits_(limits) {
  const size_t rows = static_cast<size_t>(limits.backend.max_rows);
  const int64_t positions = int64_t{kPageTokens} * kTreeGroup;
  const int64_t groups = (limits.shape.context + positions - 1) / positions;
  cover_words_ = (groups + 63) / 64;
  row_sequence_.resize(rows);
  row_position_.resize(rows);
  partial_row_.resize(rows);
  const size_t row_heads = rows * static_cast<size_t>(limits.shape.kv_heads);
  cover_.resize(row_heads * static_cast<size_t>(cover_words_));
  items_.reserve(row_heads);
  merges_.reserve(static_cast<size_t>(limits.partial_rows * limits.shape.kv_heads));
  if (!limits.open_pages) return;
  const size_t most = static_cast<size_t>(MaxOwnChunks(limits.backend));
  own_chunks_.reserve(most);
  whole_chunks_.reserve(most);
  moved_chunks_.reserve(most);
  first_own_chunk_.reserve(static_cast<size_t>(limits.backend.max_sequences));
}

Status StepTables::Build(const StepBatch& batch, const AttendPlan& plan) {
  batch_ = StepBatch();
  const int64_t rows = static_cast<int64_t>(batch.tokens.size());
  if (rows < 1 || rows > limits_.backend.max_rows) {
    return InvalidArgument("step.tokens", Numbers(rows, " rows; a step has 1 to ",
                                                  limits_.backend.max_rows));
  }
  for (const TokenId token : batch.tokens) {
    if (token < 0 || token >= limits_.shape.vocab) {
      return InvalidArgument("step.tokens", Numbers(token, " is not in a vocabulary of ",
                                                    limits_.shape.vocab));
    }
  }
  RENGA_RETURN_IF_ERROR(CheckSequences(batch));
  RENGA_RETURN_IF_ERROR(CheckLogitRows(batch));
  RENGA_RETURN_IF_ERROR(CheckPlan(batch, plan));
  OrderItems(plan);
  if (limits_.open_pages) ListOwnChunks(batch);
  batch_ = batch;
  return OkStatus();
}

Status StepTables::CheckSequences(const StepBatch& batch) {
  const int64_t sequences = static_cast<int64_t>(batch.sequences.size());
  if (sequences > limits_.backend.max_sequences) {
    return InvalidArgument(
        "step.sequences",
        Numbers(sequences, " sequences; the limit is ", limits_.backend.max_sequences));
  }
  const int64_t rows = static_cast<int64_t>(batch.tokens.size());
  int64_t row = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    const SequenceRows& sequence = batch.sequences[static_cast<size_t>(s)];
    RENGA_RETURN_IF_ERROR(CheckSequence(sequence, row));
    if (sequence.rows > rows - row) {
      return InvalidArgument(
          "step.sequences", Numbers(row + sequence.rows, " rows, but tokens for ", rows));
    }
    for (int32_t i = 0; i < sequence.rows; ++i, ++row) {
      row_sequence_[static_cast<size_t>(row)] = static_cast<int32_t>(s);
      row_position_[static_cast<size_t>(row)] = sequence.first_position + i;
    }
  }
  if (row == rows) return OkStatus();
  return InvalidArgument("step.sequences", Numbers(row, " rows, but tokens for ", rows));
}

Status StepTables::CheckSequence(const SequenceRows& sequence,
                                 int64_t expected_first_row) const {
  if (sequence.first_row != expected_first_row || sequence.rows < 1) {
    return InvalidArgument(
        "step.sequences",
        "rows must follow one another; expected at least one from row " +
            std::to_string(expected_first_row));
  }
  const int64_t end = int64_t{sequence.first_position} + sequence.rows;
  if (sequence.first_position < 0 || end > limits_.shape.context) {
    return InvalidArgument("step.sequences", Numbers(end, " positions; the context has ",
                                                     limits_.shape.context));
  }
  const int64_t needed = PagesFor(end);
  if (needed > static_cast<int64_t>(sequence.pages.size())) {
    return InvalidArgument("step.sequences",
                           Numbers(end, " positions do not fit pages: ",
                                   static_cast<int64_t>(sequence.pages.size())));
  }
  for (int64_t i = 0; i < needed; ++i) {
    const PageId page = sequence.pages[static_cast<size_t>(i)];
    if (page < 0 || page >= limits_.pages) {
      return InvalidArgument(
          "step.sequences", Numbers(page, " is not a page of a pool of ", limits_.pages));
    }
  }
  const int64_t open_pages = limits_.backend.max_sequences;
  if (!limits_.open_pages ||
      (sequence.open_page >= 0 && sequence.open_page < open_pages)) {
    return OkStatus();
  }
  return InvalidArgument(
      "step.sequences",
      Numbers(sequence.open_page, " is not an open page of a pool of ", open_pages));
}

Status StepTables::CheckLogitRows(const StepBatch& batch) const {
  const int64_t count = static_cast<int64_t>(batch.logit_rows.size());
  if (count > limits_.backend.max_logit_rows) {
    return InvalidArgument("step.logit_rows", Numbers(count, " logit rows; the limit is ",
                                                      limits_.backend.max_logit_rows));
  }
  int64_t previous = -1;
  for (const int32_t row : batch.logit_rows) {
    if (row <= previous || row >= static_cast<int64_t>(batch.tokens.size())) {
      return InvalidArgument("step.logit_rows",
                             "row " + std::to_string(row) + " is not above " +
                                 Numbers(previous, " and below ",
                                         static_cast<int64_t>(batch.tokens.size())));
    }
    previous = row;
  }
  return OkStatus();
}

Status StepTables::CheckPlan(const StepBatch& batch, const AttendPlan& plan) {
  const int64_t rows = static_cast<int64_t>(batch.tokens.size());
  std::fill_n(cover_.begin(), rows * limits_.shape.kv_heads * cover_words_, uint64_t{0});
  std::fill_n(partial_row_.begin(), rows, -1);
  merges_.clear();
  split_rows_ = 0;
  for (const AttendItem& item : plan.items) RENGA_RETURN_IF_ERROR(CoverItem(batch, item));
  return CheckCover(rows);
}

Status StepTables::CoverItem(const StepBatch& batch, const AttendItem& item) {
  if (item.sequence < 0 ||
      item.sequence >= static_cast<int64_t>(batch.sequences.size()) || item.kv_head < 0 ||
      item.kv_head >= limits_.shape.kv_heads || item.first_group < 0 || item.groups < 1) {
    return InvalidArgument("plan",
                           "an item names no sequence, KV head or group of the step");
  }
  const SequenceRows& sequence = batch.sequences[static_cast<size_t>(item.sequence)];
  const int64_t end = int64_t{item.first_row} + item.rows;
  if (item.rows < 1 || item.first_row < sequence.first_row ||
      end > int64_t{sequence.first_row} + sequence.rows) {
    return InvalidArgument("plan", "an item's rows lie outside its sequence");
  }
  for (int64_t row = item.first_row; row < end; ++row) {
    RENGA_RETURN_IF_ERROR(CoverRow(item, row));
  }
  return OkStatus();
}

Status StepTables::CoverRow(const AttendItem& item, int64_t row) {
  const int64_t needed = GroupsOf(row);
  const int64_t end = std::min(int64_t{item.first_group} + item.groups, needed);
  uint64_t* words = &cover_[static_cast<size_t>(
      (row * limits_.shape.kv_heads + item.kv_head) * cover_words_)];
  for (int64_t g = item.first_group; g < end; ++g) {
    const uint64_t bit = uint64_t{1} << (g % 64);
    if ((words[g / 64] & bit) != 0) {
      return InvalidArgument("plan",
                             Numbers(row, " is a row that attends twice to group ", g));
    }
    words[g / 64] |= bit;
  }
  if ((item.first_group == 0 && end == needed) || item.first_group >= end) {
    return OkStatus();
  }
  int32_t& slot = partial_row_[static_cast<size_t>(row)];
  if (slot < 0) {
    if (split_rows_ >= limits_.partial_rows) {
      return InvalidArgument("plan", "more rows are split over items than the limit of " +
                                         std::to_string(limits_.partial_rows));
    }
    slot = split_rows_++;
  }
  if (item.first_group == 0) {
    merges_.push_back({static_cast<int32_t>(row), item.kv_head, needed});
  }
  return OkStatus();
}

Status StepTables::CheckCover(int64_t rows) const {
  const uint64_t* words = cover_.data();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t needed = GroupsOf(row);
    for (int32_t head = 0; head < limits_.shape.kv_heads; ++head) {
      int64_t covered = 0;
      for (int64_t w = 0; w < cover_words_; ++w) covered += std::popcount(*words++);
      if (covered != needed) {
        return InvalidArgument("plan", "row " + std::to_string(row) + " attends to " +
                                           Numbers(covered, " groups of ", needed));
      }
    }
  }
  return OkStatus();
}

void StepTables::OrderItems(const AttendPlan& plan) {
  // The plan has the heaviest items first; deal them out round robin to the ranges that
  // the workers begin with.
  const int64_t count = static_cast<int64_t>(plan.items.size());
  const int64_t threads = limits_.threads;
  items_.resize(plan.items.size());
  int64_t next = 0;
  for (int64_t place = 0; next < count; ++place) {
    for (int64_t worker = 0; worker < threads; ++worker) {
      const int64_t begin = count * worker / threads;
      if (begin + place >= count * (worker + 1) / threads) continue;
      items_[static_cast<size_t>(begin + place)] =
          plan.items[static_cast<size_t>(next++)];
    }
  }
}

void StepTables::ListOwnChunks(const StepBatch& batch) {
  own_chunks_.clear();
  whole_chunks_.clear();
  moved_chunks_.clear();
  first_own_chunk_.clear();
  int32_t scratch = 0;
  for (const SequenceRows& sequence : batch.sequences) {
    first_own_chunk_.push_back(static_cast<int32_t>(own_chunks_.size()));
    const int32_t end = sequence.first_position + sequence.rows;
    const int32_t first = sequence.first_position / kPageTokens;
    for (int32_t chunk = first; chunk * kPageTokens < end; ++chunk) {
      const int32_t index = static_cast<int32_t>(own_chunks_.size());
      const int32_t tokens = std::min(kPageTokens, end - chunk * kPageTokens);
      own_chunks_.push_back({.page = sequence.pages[static_cast<size_t>(chunk)],
                             .open_page = sequence.open_page,
                             .scratch = chunk == first ? -1 : scratch++,
                             .tokens = tokens});
      if (tokens == kPageTokens) {
        whole_chunks_.push_back(index);
      } else if (chunk != first) {
        moved_chunks_.push_back(index);
      }
    }
  }
}

}  // namespace renga
