// ReplayBackend: a Backend without a model. It emits scripted ids, so that tests of the
// engine and of the server know every answer in advance.
//
// Its pages hold token ids: what a sequence has "seen" is read back from its pages, so a
// wrong page table, a page that was freed too early or a position that was never computed
// shows as a failed step, not as a plausible answer. With int8 pages the chunk that a
// sequence is at lies in its open page; the page is written when the chunk is whole.
//
// A row's logits are 10 at the script's id and 0 elsewhere; log-probabilities are theirs.
// Of the other fields of a SampleSpec these act: `given`; a token that is banned or has a
// bias of -100 gives way to the next id that is neither, modulo the vocabulary; a bias of
// 100 forces its token. Seed, choice and penalties don't: the script knows the answer.
//
// Thread safety: the Backend methods are for one thread (the engine's); the hooks may be
// called from any thread.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "renga/backend.h"

namespace renga::test {

struct ReplayOptions {
  int32_t vocab = 300;
  int32_t layers = 1;
  int32_t context = 1024;
};

// What one step computed.
struct ReplayStep {
  struct Sequence {
    int32_t first_position = 0;
    int32_t rows = 0;
    std::vector<PageId> pages;
    PageId open_page = -1;
  };
  std::vector<TokenId> tokens;
  std::vector<Sequence> sequences;
  std::vector<int32_t> logit_rows;
};

class ReplayBackend final : public Backend {
 public:
  // The id of answer token `index` (0 for the first sampled one) to `prompt`, which is
  // what the pages hold. -1: logits that are not finite.
  using Script = std::function<TokenId(std::span<const TokenId> prompt, uint32_t index)>;

  explicit ReplayBackend(Script script, ReplayOptions options = {});
  // The same ids to every prompt; after the last one, that one again.
  static Script Always(std::vector<TokenId> ids);
  // Any prompt its own answer without end: a hash of prompt and index, ids >= `least`.
  static Script Hash(int32_t vocab, TokenId least);

  // ---- Hooks.
  // Step number `step` (from 0, counted over the backend's life) fails with `status`.
  void FailStep(int64_t step, Status status) RENGA_EXCLUDES(mutex_);
  // From now on every step waits at its start, until ReleaseSteps lets some through.
  void HoldSteps() RENGA_EXCLUDES(mutex_);
  void ReleaseSteps(int64_t count) RENGA_EXCLUDES(mutex_);
  void ReleaseAllSteps() RENGA_EXCLUDES(mutex_);
  // Returns once a step waits.
  void WaitUntilHeld() RENGA_EXCLUDES(mutex_);

  int64_t steps() const RENGA_EXCLUDES(mutex_);  // That were begun, failed ones included.
  int64_t rows() const RENGA_EXCLUDES(mutex_);   // Of all steps that did not fail.
  std::vector<ReplayStep> records() const RENGA_EXCLUDES(mutex_);

  // ---- Backend.
  BackendInfo info() const override;
  Status Configure(const GraphShape& shape, const BackendLimits& limits) override;
  StatusOr<MatrixId> LoadMatrix(std::span<const TensorView> stacked) override;
  StatusOr<VectorId> LoadVector(std::span<const float> values) override;
  Status CreateKvPool(const KvGeometry& geometry, int64_t pages) override;
  int64_t page_bytes() const override;
  int64_t open_page_bytes() const override;
  PageLayout page_layout() const override;
  Status ReadPage(PageId page, std::span<std::byte> bytes) override;
  Status WritePage(PageId page, std::span<const std::byte> bytes) override;
  Status CopyPageHead(PageId from, PageId to, int32_t tokens) override;
  Status BeginStep(const StepBatch& batch, const AttendPlan& plan) override;
  Status Embed(MatrixId table) override;
  Status NormQkvRopeAppend(int32_t layer, const LayerWeights& weights) override;
  Status Attend(int32_t layer) override;
  Status OutProjAdd(const LayerWeights& weights) override;
  Status Mlp(const LayerWeights& weights) override;
  Status Head(VectorId norm, MatrixId table) override;
  Status Sample(std::span<const SampleSpec> specs,
                std::span<SampleResult> results) override;
  StatusOr<std::span<const float>> Logits(int32_t logit_row) override;

 private:
  Status AwaitTurn() RENGA_EXCLUDES(mutex_);
  void Record(const StepBatch& batch) RENGA_EXCLUDES(mutex_);
  Status Store(const StepBatch& batch);
  Status CheckBatch(const StepBatch& batch) const;
  // What the sequence of a logit row has seen, that row included, from its pages.
  StatusOr<std::vector<TokenId>> History(int32_t logit_row) const;
  TokenId* Page(PageId page) { return &pages_[static_cast<size_t>(page) * kPageTokens]; }
  const TokenId* Page(PageId page) const {
    return &pages_[static_cast<size_t>(page) * kPageTokens];
  }
  Status CheckPage(PageId page) const;
  bool has_open_pages() const { return !open_.empty(); }
  // `page` among the open pages, or, without those, among the pages.
  StatusOr<TokenId*> CurrentPage(PageId page);
  Status CheckOpenPages(const StepBatch& batch) const;
  Status StoreRow(const SequenceRows& sequence, int32_t position, TokenId token);
  // The script's id for the row of `spec`.
  StatusOr<TokenId> Scripted(const SampleSpec& spec) const;
  TokenId Draw(const SampleSpec& spec, TokenId scripted) const;
  float Logprob(TokenId scripted, TokenId token) const;
  std::vector<TopLogprob> Top(TokenId scripted, int32_t n) const;

  const Script script_;
  const ReplayOptions options_;
  int32_t next_id_ = 1;
  BackendLimits limits_;
  std::vector<TokenId> pages_;     // [pages, 64]; -1 where nothing was written.
  std::vector<TokenId> open_;      // [max_sequences, 64], with open pages.
  ReplayStep step_;                // The one in progress.
  std::vector<TokenId> scripted_;  // Per logit row; -1 before Sample.
  std::vector<float> logits_;      // [vocab]
  std::vector<std::vector<TopLogprob>> tops_;  // Per spec of the step.

  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<int64_t> permits_
      RENGA_GUARDED_BY(mutex_);  // nullopt: steps are not held.
  bool waiting_ RENGA_GUARDED_BY(mutex_) = false;
  int64_t steps_ RENGA_GUARDED_BY(mutex_) = 0;
  int64_t rows_ RENGA_GUARDED_BY(mutex_) = 0;
  std::vector<std::pair<int64_t, Status>> failures_ RENGA_GUARDED_BY(mutex_);
  std::vector<ReplayStep> records_ RENGA_GUARDED_BY(mutex_);
};

// A shape and limits that go with a ReplayBackend, for a Transformer without a file.
GraphShape ReplayShape(const ReplayOptions& options);

}  // namespace renga::test
