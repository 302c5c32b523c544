#include "tests/fakes/fake_backend.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace renga {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

uint64_t HistoryOf(std::span<const TokenId> tokens) {
  uint64_t history = 0;
  for (const TokenId token : tokens) history = Mix(history, static_cast<uint64_t>(token));
  return history;
}

// What the penalties see, whatever the order of the tokens in it.
uint64_t MixPenalties(uint64_t hash, const SampleSpec& spec) {
  const bool repetition = spec.repetition_penalty != 1.0f;
  const bool in_answer = spec.presence_penalty != 0.0f || spec.frequency_penalty != 0.0f;
  uint64_t all = 0;
  uint64_t answer = 0;
  for (const TokenCount& count : spec.history) {
    const uint64_t token = static_cast<uint64_t>(count.token) + 1;
    all += Mix(1, token);
    if (count.in_answer > 0) answer += Mix(static_cast<uint64_t>(count.in_answer), token);
  }
  if (repetition)
    hash = Mix(Mix(hash, std::bit_cast<uint32_t>(spec.repetition_penalty)), all);
  if (in_answer) {
    hash = Mix(hash, std::bit_cast<uint32_t>(spec.presence_penalty));
    hash = Mix(Mix(hash, std::bit_cast<uint32_t>(spec.frequency_penalty)), answer);
  }
  return hash;
}

bool IsBanned(const SampleSpec& spec, TokenId token) {
  return std::find(spec.banned.begin(), spec.banned.end(), token) != spec.banned.end() ||
         std::any_of(spec.logit_bias.begin(), spec.logit_bias.end(),
                     [token](const LogitBias& bias) {
                       return bias.token == token && bias.bias <= -100.0f;
                     });
}

bool Better(const TopLogprob& a, const TopLogprob& b) {
  return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
}

void CountToken(std::vector<TokenCount>& counts, TokenId token, int32_t in_answer) {
  const auto at = std::find_if(counts.begin(), counts.end(),
                               [token](const TokenCount& c) { return c.token == token; });
  if (at == counts.end()) {
    counts.push_back({.token = token, .in_answer = in_answer});
  } else {
    at->in_answer += in_answer;
  }
}

}  // namespace

TokenId FakeBackend::Draw(uint64_t history, const SampleSpec& spec) const {
  if (spec.given >= 0) return spec.given;
  for (const LogitBias& bias : spec.logit_bias) {
    if (bias.bias >= 100.0f && !IsBanned(spec, bias.token)) return bias.token;
  }
  history = MixPenalties(history, spec);
  if (spec.temperature > 0.0f) {
    history = Mix(Mix(Mix(history, spec.seed), spec.choice), spec.token_index);
  }
  TokenId token = static_cast<TokenId>(history % static_cast<uint64_t>(vocab_));
  for (int32_t tries = 0; IsBanned(spec, token); ++tries) {
    RENGA_CHECK(tries < vocab_);  // Some token must be left.
    token = (token + 1) % vocab_;
  }
  return token;
}

float FakeBackend::Logprob(uint64_t history, TokenId token) const {
  if (token == static_cast<TokenId>(history % static_cast<uint64_t>(vocab_))) {
    return -0.125f;
  }
  const uint64_t steps = Mix(history, static_cast<uint64_t>(token)) % 1024;
  return -1.0f - static_cast<float>(steps) / 64.0f;
}

void FakeBackend::FillTop(uint64_t history, std::span<TopLogprob> top) const {
  size_t size = 0;
  for (TokenId token = 0; token < vocab_; ++token) {
    const TopLogprob next{.token = token, .logprob = Logprob(history, token)};
    if (size == top.size() && (size == 0 || !Better(next, top[size - 1]))) continue;
    size_t place = size < top.size() ? size++ : size - 1;
    for (; place > 0 && Better(next, top[place - 1]); --place)
      top[place] = top[place - 1];
    top[place] = next;
  }
  RENGA_CHECK(size == top.size());  // The vocabulary is smaller than what was asked.
}

std::vector<TokenId> FakeBackend::ExpectedAnswer(std::span<const TokenId> prompt,
                                                 int64_t tokens, float temperature,
                                                 uint64_t seed, uint32_t choice) const {
  return ExpectedAnswer(prompt, tokens,
                        {.temperature = temperature, .seed = seed, .choice = choice});
}

std::vector<TokenId> FakeBackend::ExpectedAnswer(std::span<const TokenId> prompt,
                                                 int64_t tokens, SampleSpec how,
                                                 int64_t min_tokens) const {
  std::vector<TokenId> answer;
  std::vector<TokenCount> counts;
  for (const TokenId token : prompt) CountToken(counts, token, 0);
  uint64_t history = HistoryOf(prompt);
  for (int64_t i = 0; i < tokens; ++i) {
    how.history = counts;
    how.token_index = static_cast<uint32_t>(i);
    if (i >= min_tokens) how.banned = {};
    answer.push_back(Draw(history, how));
    history = Mix(history, static_cast<uint64_t>(answer.back()));
    CountToken(counts, answer.back(), 1);
  }
  return answer;
}

float FakeBackend::ExpectedLogprob(std::span<const TokenId> history,
                                   TokenId token) const {
  return Logprob(HistoryOf(history), token);
}

std::vector<TopLogprob> FakeBackend::ExpectedTop(std::span<const TokenId> history,
                                                 int32_t n) const {
  std::vector<TopLogprob> top(static_cast<size_t>(n));
  FillTop(HistoryOf(history), top);
  return top;
}

Status FakeBackend::Configure(const GraphShape&, const BackendLimits& limits) {
  limits_ = limits;
  return OkStatus();
}

StatusOr<MatrixId> FakeBackend::LoadMatrix(std::span<const TensorView>) {
  return MatrixId{1};
}

StatusOr<VectorId> FakeBackend::LoadVector(std::span<const float>) { return VectorId{1}; }

Status FakeBackend::CreateKvPool(const KvGeometry& geometry, int64_t pages) {
  kept_.assign(static_cast<size_t>(pages * kPageTokens), -1);
  open_.clear();
  if (HasOpenPages(geometry.dtype)) {
    RENGA_CHECK(limits_.max_sequences > 0);
    open_.assign(static_cast<size_t>(limits_.max_sequences * kPageTokens), -1);
  }
  logit_rows_.reserve(kMaxSpecs);
  tops_.resize(kMaxSpecs * kMaxTopLogprobs);
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
  std::vector<TokenId>& pages = open_.empty() ? kept_ : open_;
  const auto source = pages.begin() + int64_t{from} * kPageTokens;
  std::copy(source, source + tokens, pages.begin() + int64_t{to} * kPageTokens);
  return OkStatus();
}

TokenId& FakeBackend::At(const SequenceRows& rows, int64_t position, int64_t own) {
  const size_t index = static_cast<size_t>(position / kPageTokens);
  RENGA_CHECK(index < rows.pages.size());
  const bool open = !open_.empty() && position / kPageTokens == own;
  const int64_t page = open ? rows.open_page : rows.pages[index];
  RENGA_CHECK(page >= 0);
  std::vector<TokenId>& pages = open ? open_ : kept_;
  return pages.at(static_cast<size_t>(page * kPageTokens + position % kPageTokens));
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
  logit_rows_.clear();
  for (const SequenceRows& rows : batch.sequences) {
    for (int32_t i = 0; i < rows.rows; ++i) {
      const int32_t row = rows.first_row + i;
      const int64_t position = int64_t{rows.first_position} + i;
      At(rows, position, position / kPageTokens) = batch.tokens[static_cast<size_t>(row)];
      const size_t next = logit_rows_.size();
      if (next < batch.logit_rows.size() && batch.logit_rows[next] == row) {
        logit_rows_.push_back(ReadHistory(rows, position));
      }
      Close(rows, position);
    }
  }
  RENGA_CHECK(logit_rows_.size() == batch.logit_rows.size());
  return OkStatus();
}

FakeBackend::LogitRow FakeBackend::ReadHistory(const SequenceRows& rows, int64_t last) {
  const int64_t own = last / kPageTokens;
  LogitRow logits{.history = 0, .finite = At(rows, 0, own) != kPoisonToken};
  for (int64_t position = 0; position <= last; ++position) {
    logits.history = Mix(logits.history, static_cast<uint64_t>(At(rows, position, own)));
  }
  return logits;
}

void FakeBackend::Close(const SequenceRows& rows, int64_t position) {
  if (open_.empty() || (position + 1) % kPageTokens != 0) return;
  const int64_t chunk = position / kPageTokens;
  for (int64_t p = chunk * kPageTokens; p <= position; ++p) {
    At(rows, p, -1) = std::exchange(At(rows, p, chunk), -1);
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
  RENGA_CHECK(specs.size() == results.size() && specs.size() <= kMaxSpecs);
  for (size_t i = 0; i < specs.size(); ++i) {
    const SampleSpec& spec = specs[i];
    const LogitRow& logits = logit_rows_.at(static_cast<size_t>(spec.logit_row));
    results[i] = {.token = Draw(logits.history, spec), .finite = logits.finite};
    if (spec.logprobs < 0) continue;
    RENGA_CHECK(spec.logprobs <= kMaxTopLogprobs);
    const std::span<TopLogprob> top(&tops_[i * kMaxTopLogprobs],
                                    static_cast<size_t>(spec.logprobs));
    FillTop(logits.history, top);
    results[i].logprob = Logprob(logits.history, results[i].token);
    results[i].top = top;
  }
  return OkStatus();
}

StatusOr<std::span<const float>> FakeBackend::Logits(int32_t) {
  return Unimplemented("the fake has no logits");
}

}  // namespace renga
