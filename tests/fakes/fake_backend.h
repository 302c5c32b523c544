// FakeBackend: a device whose "model" is a hash of the whole history of a sequence.
//
// It keeps the token of every position in its pages, as a real device keeps keys and
// values, and reads the history back through the page table. A wrong page, position,
// token or a page handed out twice therefore changes every later token. With int8 pages
// it has open pages: the chunk that a sequence is at is kept there and nowhere else, its
// page is written when the chunk is whole, and the open page is wiped. The next token is
//   greedy:        Hash(history) % vocab
//   temperature>0: Hash(history, seed, choice, token_index) % vocab
// so ExpectedAnswer can say what a request must get, whatever its company. The other
// fields of a SampleSpec act in the simplest way that shows whether they arrive:
//   penalties   one that is on enters the hash, with the tokens and counts it sees
//   banned      and tokens with a bias of -100: the next id that is neither, modulo vocab
//   logit_bias  of 100: that token, unless it is banned (several: the first)
//   given       that token
//   logprobs    made up from the history, the greedy token's the best: Logprob
//
// Thread rule: that of Backend. The hooks run on the engine thread.

#pragma once

#include <functional>
#include <span>
#include <vector>

#include "renga/backend.h"

namespace renga {

class FakeBackend final : public Backend {
 public:
  // What one step was asked for.
  struct StepRecord {
    int32_t rows = 0;
    int32_t logit_rows = 0;
    std::vector<int32_t> sequence_rows;  // Rows of each sequence.
  };

  // A prompt that begins with this token makes its own logits not finite.
  static constexpr TokenId kPoisonToken = 1;

  explicit FakeBackend(int32_t vocab = 1000) : vocab_(vocab) {}

  // What a request of that prompt gets from this device, end tokens left aside.
  std::vector<TokenId> ExpectedAnswer(std::span<const TokenId> prompt, int64_t tokens,
                                      float temperature = 0.0f, uint64_t seed = 0,
                                      uint32_t choice = 0) const;
  // The same with every field that acts on a draw. `how.history` and `how.token_index`
  // are filled in here; `how.banned` holds for the first `min_tokens` tokens only.
  std::vector<TokenId> ExpectedAnswer(std::span<const TokenId> prompt, int64_t tokens,
                                      SampleSpec how,
                                      int64_t min_tokens = kAllTokens) const;
  static constexpr int64_t kAllTokens = int64_t{1} << 60;

  // The log-probability of `token` after all of `history`, and the n best ones there.
  float ExpectedLogprob(std::span<const TokenId> history, TokenId token) const;
  std::vector<TopLogprob> ExpectedTop(std::span<const TokenId> history, int32_t n) const;

  // Called at the start of each step with its number, from 1. What it returns is the
  // step's status.
  std::function<Status(int64_t step)> on_step;
  bool keep_records = true;
  std::vector<StepRecord> records;
  int64_t steps() const { return steps_; }
  // The tokens in an open page; -1 where there is none.
  std::span<const TokenId> OpenPage(PageId page) const {
    return std::span(open_).subspan(static_cast<size_t>(page * kPageTokens), kPageTokens);
  }

  BackendInfo info() const override { return {"fake", "fake", 1}; }
  Status Configure(const GraphShape& shape, const BackendLimits& limits) override;
  StatusOr<MatrixId> LoadMatrix(std::span<const TensorView> stacked) override;
  StatusOr<VectorId> LoadVector(std::span<const float> values) override;
  Status CreateKvPool(const KvGeometry& geometry, int64_t pages) override;
  int64_t page_bytes() const override { return kPageTokens * sizeof(TokenId); }
  int64_t open_page_bytes() const override { return open_.empty() ? 0 : page_bytes(); }
  PageLayout page_layout() const override { return {}; }
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
  static constexpr size_t kMaxSpecs = 1024;  // Of one step.

  struct LogitRow {
    uint64_t history = 0;
    bool finite = true;
  };

  // Where a row whose own chunk is `own` finds a position.
  TokenId& At(const SequenceRows& rows, int64_t position, int64_t own);
  // After the last position of a chunk: its page is written, the open page wiped.
  void Close(const SequenceRows& rows, int64_t position);
  LogitRow ReadHistory(const SequenceRows& rows, int64_t last);
  TokenId Draw(uint64_t history, const SampleSpec& spec) const;
  float Logprob(uint64_t history, TokenId token) const;
  // The best tokens after `history`, as many as `top` has room for.
  void FillTop(uint64_t history, std::span<TopLogprob> top) const;

  const int32_t vocab_;
  BackendLimits limits_;
  std::vector<TokenId> kept_;  // [pages, kPageTokens]
  std::vector<TokenId> open_;  // [max_sequences, kPageTokens], with open pages.
  std::vector<LogitRow> logit_rows_;
  std::vector<TopLogprob> tops_;  // [kMaxSpecs, kMaxTopLogprobs]
  int64_t steps_ = 0;
};

}  // namespace renga
