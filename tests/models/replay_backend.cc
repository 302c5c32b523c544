#include "tests/models/replay_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "base/status_macros.h"

namespace renga::test {
namespace {

constexpr double kScriptedLogit = 10.0;

}  // namespace

ReplayBackend::ReplayBackend(Script script, ReplayOptions options)
    : script_(std::move(script)), options_(options) {}

ReplayBackend::Script ReplayBackend::Always(std::vector<TokenId> ids) {
  return [ids = std::move(ids)](std::span<const TokenId>, uint32_t index) {
    return ids[std::min<size_t>(index, ids.size() - 1)];
  };
}

ReplayBackend::Script ReplayBackend::Hash(int32_t vocab, TokenId least) {
  return [vocab, least](std::span<const TokenId> prompt, uint32_t index) {
    uint64_t hash = 0xcbf29ce484222325u + index;  // FNV-1a over 32-bit ids.
    for (const TokenId id : prompt) {
      hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001b3u;
    }
    hash ^= hash >> 29;
    return least + static_cast<TokenId>(hash % static_cast<uint64_t>(vocab - least));
  };
}

void ReplayBackend::FailStep(int64_t step, Status status) {
  MutexLock lock(mutex_);
  failures_.emplace_back(step, std::move(status));
}

void ReplayBackend::HoldSteps() {
  MutexLock lock(mutex_);
  permits_ = 0;
}

void ReplayBackend::ReleaseSteps(int64_t count) {
  MutexLock lock(mutex_);
  permits_ = permits_.value_or(0) + count;
  changed_.NotifyAll();
}

void ReplayBackend::ReleaseAllSteps() {
  MutexLock lock(mutex_);
  permits_.reset();
  changed_.NotifyAll();
}

void ReplayBackend::WaitUntilHeld() {
  MutexLock lock(mutex_);
  while (!waiting_) changed_.Wait(mutex_);
}

int64_t ReplayBackend::steps() const {
  MutexLock lock(mutex_);
  return steps_;
}

int64_t ReplayBackend::rows() const {
  MutexLock lock(mutex_);
  return rows_;
}

std::vector<ReplayStep> ReplayBackend::records() const {
  MutexLock lock(mutex_);
  return records_;
}

BackendInfo ReplayBackend::info() const {
  return {.name = "replay", .numerics_id = "replay", .threads = 1};
}

Status ReplayBackend::Configure(const GraphShape&, const BackendLimits& limits) {
  limits_ = limits;
  return OkStatus();
}

StatusOr<MatrixId> ReplayBackend::LoadMatrix(std::span<const TensorView>) {
  return MatrixId{next_id_++};
}

StatusOr<VectorId> ReplayBackend::LoadVector(std::span<const float>) {
  return VectorId{next_id_++};
}

Status ReplayBackend::CreateKvPool(const KvGeometry& geometry, int64_t pages) {
  pages_.assign(static_cast<size_t>(pages) * kPageTokens, -1);
  if (HasOpenPages(geometry.dtype)) {
    open_.assign(static_cast<size_t>(limits_.max_sequences) * kPageTokens, -1);
  }
  return OkStatus();
}

int64_t ReplayBackend::page_bytes() const { return kPageTokens * sizeof(TokenId); }

int64_t ReplayBackend::open_page_bytes() const {
  return has_open_pages() ? page_bytes() : 0;
}

PageLayout ReplayBackend::page_layout() const { return {.id = 0xffff, .version = 1}; }

Status ReplayBackend::CheckPage(PageId page) const {
  if (page >= 0 && static_cast<size_t>(page) < pages_.size() / kPageTokens) {
    return OkStatus();
  }
  return Internal("page " + std::to_string(page) + " does not exist");
}

Status ReplayBackend::ReadPage(PageId page, std::span<std::byte> bytes) {
  RENGA_RETURN_IF_ERROR(CheckPage(page));
  if (bytes.size() != static_cast<size_t>(page_bytes())) return Internal("page size");
  std::memcpy(bytes.data(), Page(page), bytes.size());
  return OkStatus();
}

Status ReplayBackend::WritePage(PageId page, std::span<const std::byte> bytes) {
  RENGA_RETURN_IF_ERROR(CheckPage(page));
  if (bytes.size() != static_cast<size_t>(page_bytes())) return Internal("page size");
  std::memcpy(Page(page), bytes.data(), bytes.size());
  return OkStatus();
}

Status ReplayBackend::CopyPageHead(PageId from, PageId to, int32_t tokens) {
  RENGA_ASSIGN_OR_RETURN(const TokenId* source, CurrentPage(from));
  RENGA_ASSIGN_OR_RETURN(TokenId * target, CurrentPage(to));
  if (tokens < 0 || tokens > kPageTokens) return Internal("head of a page");
  std::copy_n(source, tokens, target);
  return OkStatus();
}

StatusOr<TokenId*> ReplayBackend::CurrentPage(PageId page) {
  if (!has_open_pages()) {
    RENGA_RETURN_IF_ERROR(CheckPage(page));
    return Page(page);
  }
  if (page < 0 || static_cast<size_t>(page) >= open_.size() / kPageTokens) {
    return Internal("open page " + std::to_string(page) + " does not exist");
  }
  return &open_[static_cast<size_t>(page) * kPageTokens];
}

Status ReplayBackend::AwaitTurn() {
  MutexLock lock(mutex_);
  const int64_t step = steps_++;
  waiting_ = true;
  changed_.NotifyAll();
  while (permits_.has_value() && *permits_ == 0) changed_.Wait(mutex_);
  if (permits_.has_value()) --*permits_;
  waiting_ = false;
  for (const auto& [number, status] : failures_) {
    if (number == step) return status;
  }
  return OkStatus();
}

Status ReplayBackend::CheckBatch(const StepBatch& batch) const {
  if (batch.tokens.empty()) return Internal("a step without rows");
  int32_t next_row = 0;
  std::set<PageId> written;
  for (const SequenceRows& sequence : batch.sequences) {
    if (sequence.first_row != next_row || sequence.rows < 1) {
      return Internal("rows of the sequences do not follow each other");
    }
    next_row += sequence.rows;
    const int32_t end = sequence.first_position + sequence.rows;
    if (sequence.first_position < 0 || end > options_.context) {
      return Internal("positions outside the context");
    }
    if (static_cast<size_t>(end) > sequence.pages.size() * kPageTokens) {
      return Internal("the pages do not hold position " + std::to_string(end - 1));
    }
    for (int32_t i = sequence.first_position / kPageTokens; i * kPageTokens < end; ++i) {
      const PageId page = sequence.pages[static_cast<size_t>(i)];
      RENGA_RETURN_IF_ERROR(CheckPage(page));
      if (!written.insert(page).second) {
        return Internal("page " + std::to_string(page) + " is written by two sequences");
      }
    }
  }
  if (static_cast<size_t>(next_row) != batch.tokens.size()) {
    return Internal("tokens without a sequence");
  }
  return OkStatus();
}

Status ReplayBackend::CheckOpenPages(const StepBatch& batch) const {
  std::set<PageId> written;
  for (const SequenceRows& sequence : batch.sequences) {
    if (has_open_pages() && !written.insert(sequence.open_page).second) {
      return Internal("two sequences have one open page");
    }
  }
  return OkStatus();
}

Status ReplayBackend::StoreRow(const SequenceRows& sequence, int32_t position,
                               TokenId token) {
  const int32_t slot = position % kPageTokens;
  const PageId page = sequence.pages[static_cast<size_t>(position / kPageTokens)];
  RENGA_ASSIGN_OR_RETURN(TokenId* const current,
                         CurrentPage(has_open_pages() ? sequence.open_page : page));
  current[slot] = token;
  // What stood behind it belonged to another owner of the page, or was cut off.
  std::fill(current + slot + 1, current + kPageTokens, -1);
  if (has_open_pages() && slot + 1 == kPageTokens) {
    std::copy_n(current, kPageTokens, Page(page));
    std::fill_n(current, kPageTokens, -1);
  }
  return OkStatus();
}

Status ReplayBackend::Store(const StepBatch& batch) {
  for (const SequenceRows& sequence : batch.sequences) {
    for (int32_t i = 0; i < sequence.rows; ++i) {
      const TokenId token = batch.tokens[static_cast<size_t>(sequence.first_row + i)];
      if (token < 0 || token >= options_.vocab) {
        return Internal("token " + std::to_string(token) + " is outside the vocabulary");
      }
      RENGA_RETURN_IF_ERROR(StoreRow(sequence, sequence.first_position + i, token));
    }
  }
  return OkStatus();
}

void ReplayBackend::Record(const StepBatch& batch) {
  step_ = {};
  step_.tokens.assign(batch.tokens.begin(), batch.tokens.end());
  step_.logit_rows.assign(batch.logit_rows.begin(), batch.logit_rows.end());
  for (const SequenceRows& sequence : batch.sequences) {
    step_.sequences.push_back({.first_position = sequence.first_position,
                               .rows = sequence.rows,
                               .pages = {sequence.pages.begin(), sequence.pages.end()},
                               .open_page = sequence.open_page});
  }
  scripted_.assign(step_.logit_rows.size(), -1);
  MutexLock lock(mutex_);
  rows_ += static_cast<int64_t>(step_.tokens.size());
  records_.push_back(step_);
}

Status ReplayBackend::BeginStep(const StepBatch& batch, const AttendPlan&) {
  RENGA_RETURN_IF_ERROR(AwaitTurn());
  RENGA_RETURN_IF_ERROR(CheckBatch(batch));
  RENGA_RETURN_IF_ERROR(CheckOpenPages(batch));
  RENGA_RETURN_IF_ERROR(Store(batch));
  Record(batch);
  return OkStatus();
}

Status ReplayBackend::Embed(MatrixId) { return OkStatus(); }
Status ReplayBackend::NormQkvRopeAppend(int32_t, const LayerWeights&) {
  return OkStatus();
}
Status ReplayBackend::Attend(int32_t) { return OkStatus(); }
Status ReplayBackend::OutProjAdd(const LayerWeights&) { return OkStatus(); }
Status ReplayBackend::Mlp(const LayerWeights&) { return OkStatus(); }
Status ReplayBackend::Head(VectorId, MatrixId) { return OkStatus(); }

StatusOr<std::vector<TokenId>> ReplayBackend::History(int32_t logit_row) const {
  if (logit_row < 0 || static_cast<size_t>(logit_row) >= step_.logit_rows.size()) {
    return Internal("logit row " + std::to_string(logit_row) + " does not exist");
  }
  int32_t row = step_.logit_rows[static_cast<size_t>(logit_row)];
  for (const ReplayStep::Sequence& sequence : step_.sequences) {
    if (row >= sequence.rows) {
      row -= sequence.rows;
      continue;
    }
    std::vector<TokenId> history;
    const int32_t end = sequence.first_position + sequence.rows;
    for (int32_t position = 0; position <= sequence.first_position + row; ++position) {
      const bool open = has_open_pages() && position / kPageTokens == end / kPageTokens;
      const PageId page = sequence.pages[static_cast<size_t>(position / kPageTokens)];
      RENGA_RETURN_IF_ERROR(CheckPage(page));
      const TokenId* tokens =
          open ? &open_[static_cast<size_t>(sequence.open_page) * kPageTokens]
               : Page(page);
      history.push_back(tokens[position % kPageTokens]);
      if (history.back() < 0) {
        return Internal("position " + std::to_string(position) + " was never computed");
      }
    }
    return history;
  }
  return Internal("a logit row outside the step");
}

StatusOr<TokenId> ReplayBackend::Scripted(const SampleSpec& spec) const {
  RENGA_ASSIGN_OR_RETURN(const std::vector<TokenId> history, History(spec.logit_row));
  if (spec.given >= 0) return script_(history, 0);
  if (spec.token_index >= history.size()) {
    return Internal("token index " + std::to_string(spec.token_index) +
                    " with a history of " + std::to_string(history.size()));
  }
  const std::span<const TokenId> prompt(history.data(),
                                        history.size() - spec.token_index);
  return script_(prompt, spec.token_index);
}

TokenId ReplayBackend::Draw(const SampleSpec& spec, TokenId scripted) const {
  if (spec.given >= 0) return spec.given;
  const auto banned = [&](TokenId token) {
    return std::find(spec.banned.begin(), spec.banned.end(), token) !=
               spec.banned.end() ||
           std::any_of(spec.logit_bias.begin(), spec.logit_bias.end(),
                       [token](const LogitBias& bias) {
                         return bias.token == token && bias.bias <= -100.0f;
                       });
  };
  for (const LogitBias& bias : spec.logit_bias) {
    if (bias.bias >= 100.0f && !banned(bias.token)) return bias.token;
  }
  for (int32_t i = 0; i < options_.vocab; ++i) {
    const TokenId token = (scripted + i) % options_.vocab;
    if (!banned(token)) return token;
  }
  return -1;
}

float ReplayBackend::Logprob(TokenId scripted, TokenId token) const {
  const double sum = std::exp(kScriptedLogit) + (options_.vocab - 1);
  return static_cast<float>((token == scripted ? kScriptedLogit : 0.0) - std::log(sum));
}

std::vector<TopLogprob> ReplayBackend::Top(TokenId scripted, int32_t n) const {
  std::vector<TopLogprob> top;
  if (n > 0) top.push_back({.token = scripted, .logprob = Logprob(scripted, scripted)});
  for (TokenId token = 0; static_cast<int32_t>(top.size()) < n; ++token) {
    if (token == scripted) continue;
    top.push_back({.token = token, .logprob = Logprob(scripted, token)});
  }
  return top;
}

Status ReplayBackend::Sample(std::span<const SampleSpec> specs,
                             std::span<SampleResult> results) {
  if (specs.size() != results.size()) return Internal("one result per spec");
  tops_.clear();
  for (size_t i = 0; i < specs.size(); ++i) {
    const SampleSpec& spec = specs[i];
    RENGA_ASSIGN_OR_RETURN(const TokenId scripted, Scripted(spec));
    scripted_[static_cast<size_t>(spec.logit_row)] = scripted;
    results[i] = {.finite = scripted >= 0};
    if (scripted < 0) continue;
    results[i].token = Draw(spec, scripted);
    if (spec.logprobs < 0) continue;
    results[i].logprob = Logprob(scripted, results[i].token);
    tops_.push_back(Top(scripted, spec.logprobs));
    results[i].top = tops_.back();
  }
  return OkStatus();
}

StatusOr<std::span<const float>> ReplayBackend::Logits(int32_t logit_row) {
  if (logit_row < 0 || static_cast<size_t>(logit_row) >= scripted_.size()) {
    return Internal("logit row " + std::to_string(logit_row) + " does not exist");
  }
  logits_.assign(static_cast<size_t>(options_.vocab), 0.0f);
  const TokenId token = scripted_[static_cast<size_t>(logit_row)];
  if (token >= 0)
    logits_[static_cast<size_t>(token)] = static_cast<float>(kScriptedLogit);
  return std::span<const float>(logits_);
}

GraphShape ReplayShape(const ReplayOptions& options) {
  return {.layers = options.layers,
          .dim = 32,
          .heads = 2,
          .kv_heads = 1,
          .head_dim = 16,
          .ffn = 32,
          .vocab = options.vocab,
          .context = options.context,
          .rope_dims = 16,
          .norm_eps = 1e-5f,
          .rope_inverse_frequencies = std::vector<double>(8, 1.0)};
}

}  // namespace renga::test
