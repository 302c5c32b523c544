// A row of logits with its scratch, for the tests that draw from one.

#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sampling.h"
#include "tests/kernels/kernel_cases.h"

namespace renga {

class Sampler {
 public:
  explicit Sampler(std::vector<float> logits, const CpuOps& ops = *BestCpuOps())
      : ops_(ops), logits_(std::move(logits)), memory_(SampleScratchBytes(vocab()) + 64) {
    const auto start = reinterpret_cast<uintptr_t>(memory_.data());
    scratch_ = MakeSampleScratch(memory_.data() + (64 - start % 64) % 64, vocab());
  }

  int32_t Draw(SampleArgs args) {
    args.logits = logits_.data();
    args.vocab = vocab();
    return SampleToken(ops_, args, scratch_);
  }
  // The draws of token indices 0 to n - 1.
  std::vector<int32_t> Draws(SampleArgs args, uint32_t n) {
    std::vector<int32_t> tokens;
    for (args.token_index = 0; args.token_index < n; ++args.token_index) {
      tokens.push_back(Draw(args));
    }
    return tokens;
  }

  const std::vector<float>& logits() const { return logits_; }
  int64_t vocab() const { return static_cast<int64_t>(logits_.size()); }
  const SampleScratch& scratch() const { return scratch_; }

 private:
  const CpuOps& ops_;
  const std::vector<float> logits_;
  std::vector<std::byte> memory_;
  SampleScratch scratch_;
};

// Rows of one size that differ in kind: `kind` counts through them.
constexpr int kRowKinds = 6;
inline std::vector<float> RowOfKind(int kind, int64_t size, uint32_t seed) {
  std::vector<float> row = RandomFloats(size, seed, kind == 1 ? 5.0f : 1.0f);
  std::mt19937 random(seed + 1);
  for (float& logit : row) {
    switch (kind) {
      case 2:  // Many ties.
        logit = std::round(logit * 2.0f);
        break;
      case 3:  // Most of them are out.
        if (random() % 4 != 0) logit = -std::numeric_limits<float>::infinity();
        break;
      case 4:  // A range that no difference of floats can hold.
        if (random() % 3 == 0) logit = random() % 2 == 0 ? 3.4e38f : -3.4e38f;
        break;
      case 5:  // All equal.
        logit = -2.5f;
        break;
      default:
        break;
    }
  }
  if (kind == 3) row[static_cast<size_t>(size) / 2] = 0.25f;
  return row;
}

}  // namespace renga
