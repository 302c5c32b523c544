#include "tests/fakes/fake_backend.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace renga {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

}  // namespace

TokenId FakeBackend::Draw(uint64_t history, float temperature, uint64_t seed,
                          uint32_t index) const {
  if (temperature > 0.0f) history = Mix(Mix(history, seed), index);
  return static_cast<TokenId>(history % static_cast<uint64_t>(vocab_));
}

std::vector<TokenId> FakeBackend::ExpectedAnswer(std::span<const TokenId> prompt,
                                                 int64_t tokens, float temperature,
                                                 uint64_t seed) const {
  std::vector<TokenId> answer;
  uint64_t history = 0;
  for (const TokenId token : prompt) history = Mix(history, static_cast<uint64_t>(token));
  for (int64_t i = 0; i < tokens; ++i) {
    answer.push_back(Draw(history, temperature, seed, static_cast<uint32_t>(i)));
    history = Mix(history, static_cast<uint64_t>(answer.back()));
  }
  return answer;
}

Status FakeBackend::Configure(const GraphShape&, const BackendLimits&) {
  return OkStatus();
}

StatusOr<MatrixId> FakeBackend::LoadMatrix(std::span<const TensorView>) {
  return MatrixId{1};
}

StatusOr<VectorId> FakeBackend::LoadVector(std::span<const float>) { return VectorId{1}; }

Status FakeBackend::CreateKvPool(const KvGeometry&, int64_t pages) {
  kept_.assign(static_cast<size_t>(pages * kPageTokens), -1);
  logit_rows_.reserve(1024);
  return OkStatus();
}

Status FakeBackend::ReadPage(PageId page, std::span<std::byte> bytes) {
  std::memcpy(bytes.data(), &kept_[static_cast<size_t>(page) * kPageTokens],
              bytes.size());
  return OkStatus();
}

Status FakeBackend::WritePage(PageId page, std::span<const std::byte> bytes) {
  std::memcpy(&kept_[static_cast<size_t>(page) * kPageTokens], bytes.data(),
              bytes.size());
  return OkStatus();
}

Status FakeBackend::CopyPageHead(PageId from, PageId to, int32_t tokens) {
  const auto source = kept_.begin() + int64_t{from} * kPageTokens;
  std::copy(source, source + tokens, kept_.begin() + int64_t{to} * kPageTokens);
  return OkStatus();
}

TokenId& FakeBackend::At(const SequenceRows& rows, int64_t position) {
  const size_t index = static_cast<size_t>(position / kPageTokens);
  RENGA_CHECK(index < rows.pages.size());
  return kept_.at(static_cast<size_t>(int64_t{rows.pages[index]} * kPageTokens +
                                      position % kPageTokens));
}

Status FakeBackend::BeginStep(const StepBatch& batch, const AttendPlan&) {
  ++steps_;
  if (keep_records) {
    StepRecord record{.rows = static_cast<int32_t>(batch.tokens.size()),
                      .logit_rows = static_cast<int32_t>(batch.logit_rows.size()),
                      .sequence_rows = {}};
    for (const SequenceRows& rows : batch.sequences) {
      record.sequence_rows.push_back(rows.rows);
    }
    records.push_back(std::move(record));
  }
  if (on_step) {
    const Status status = on_step(steps_);
    if (!status.ok()) return status;
  }
  for (const SequenceRows& rows : batch.sequences) {
    for (int32_t i = 0; i < rows.rows; ++i) {
      At(rows, rows.first_position + i) =
          batch.tokens[static_cast<size_t>(rows.first_row + i)];
    }
  }
  ReadHistory(batch);
  return OkStatus();
}

void FakeBackend::ReadHistory(const StepBatch& batch) {
  logit_rows_.clear();
  for (const int32_t row : batch.logit_rows) {
    const auto rows = std::find_if(
        batch.sequences.begin(), batch.sequences.end(), [row](const SequenceRows& s) {
          return s.first_row <= row && row < s.first_row + s.rows;
        });
    RENGA_CHECK(rows != batch.sequences.end());
    LogitRow logits{.history = 0, .finite = At(*rows, 0) != kPoisonToken};
    const int64_t last = rows->first_position + (row - rows->first_row);
    for (int64_t position = 0; position <= last; ++position) {
      logits.history = Mix(logits.history, static_cast<uint64_t>(At(*rows, position)));
    }
    logit_rows_.push_back(logits);
  }
}

Status FakeBackend::Embed(MatrixId) { return OkStatus(); }
Status FakeBackend::NormQkvRopeAppend(int32_t, const LayerWeights&) { return OkStatus(); }
Status FakeBackend::Attend(int32_t) { return OkStatus(); }
Status FakeBackend::OutProjAdd(const LayerWeights&) { return OkStatus(); }
Status FakeBackend::Mlp(const LayerWeights&) { return OkStatus(); }
Status FakeBackend::Head(VectorId, MatrixId) { return OkStatus(); }

Status FakeBackend::Sample(std::span<const SampleSpec> specs,
                           std::span<SampleResult> results) {
  RENGA_CHECK(specs.size() == results.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const SampleSpec& spec = specs[i];
    const LogitRow& logits = logit_rows_.at(static_cast<size_t>(spec.logit_row));
    results[i] = {
        .token = Draw(logits.history, spec.temperature, spec.seed, spec.token_index),
        .finite = logits.finite};
  }
  return OkStatus();
}

StatusOr<std::span<const float>> FakeBackend::Logits(int32_t) {
  return Unimplemented("the fake has no logits");
}

}  // namespace renga
