// Sampling: logits -> one token. This is the definition; every instruction set draws the
// same token, because the passes over the row (kernels/ops.h) give the same bits and all
// sums of weights are sums of integers, exact in any order.
//
//   1. A NaN or +inf among the logits, or no finite logit: nothing is drawn.
//   2. temperature 0 (below 1e-6): the smallest id among the largest logits; so do
//      top_k == 1 and, with typical_p off, min_p >= 1.
//   3. depth(i) = (max - logit(i)) * (log2(e) / temperature), in float;
//      weight(i) = round(2^30 * exp2(-depth(i))). A token less likely than 2^-31 times
//      the best one has weight 0 and is never drawn.
//   4. top_k: the k largest logits stay (ties: smaller ids first).
//   5. typical_p (Meister et al. 2022): of these, ordered by |depth - mean depth|, the
//      shortest head with at least typical_p of their mass stays (ties: larger logits,
//      then smaller ids first). The mean is by weight, summed in double precision in
//      order of ids; that is |-log p - entropy|, where both hold the same constant.
//   6. top_p: of these, ordered by falling logit (ties: smaller ids first), the shortest
//      head with at least top_p of their mass stays.
//   7. min_p: weights below min_p times the largest one left go.
//   8. With 64 bits r from Philox4x32-10, key = seed, counter = (choice, token_index, 0,
//      0): the first id, in rising order, whose cumulative weight exceeds
//      r * total / 2^64.
// Each of 4 to 7 leaves at least one token.
//
// Nothing sorts the vocabulary. The maxima of blocks of 64 logits tell which blocks can
// hold a wanted token: those from the k-th largest block maximum on, or from the depth on
// down to which the count of top_k or the mass of top_p was found. Where many tokens
// remain, a histogram finds the bin that holds the border, and only inside that bin
// tokens are ordered.

#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

namespace renga {

struct SampleArgs {
  const float* logits = nullptr;  // [vocab]
  int64_t vocab = 0;
  float temperature = 1.0f;
  int32_t top_k = 0;       // <= 0 or >= vocab: off.
  float typical_p = 1.0f;  // >= 1: off.
  float top_p = 1.0f;      // >= 1: off.
  float min_p = 0.0f;      // <= 0: off.
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint32_t token_index = 0;
};

// Memory for one call; contents do not matter before or after.
struct SampleScratch {
  static constexpr int kBins = 4096;
  static constexpr int64_t kChunk = 1024;  // Logits of one partial mass of a whole row.

  float* maxima = nullptr;         // [vocab / 64], rounded up, as the next two.
  float* ranked = nullptr;         // [vocab / 64]
  uint64_t* chunk_mass = nullptr;  // [vocab / kChunk]
  uint64_t* bin_mass = nullptr;    // [kBins]
  int32_t* ids = nullptr;          // [vocab + 16]
  float* logits = nullptr;         // [vocab + 16]
  uint32_t* weights = nullptr;     // [max(vocab, kChunk)]
  float* keys = nullptr;           // [vocab]
  int32_t* bins = nullptr;         // [vocab]
  int32_t* border = nullptr;       // [vocab]
};

// Bytes of a scratch for so many logits: a multiple of 64.
size_t SampleScratchBytes(int64_t vocab);
// A scratch in so many bytes at `memory`, aligned to 64.
SampleScratch MakeSampleScratch(void* memory, int64_t vocab);

// The token, or -1 where nothing can be drawn (see 1).
int32_t SampleToken(const CpuOps& ops, const SampleArgs& args,
                    const SampleScratch& scratch);

// Fills scratch.maxima and returns the largest logit; a NaN if one is a NaN or +inf.
float ScanLogits(const CpuOps& ops, const float* logits, int64_t vocab,
                 const SampleScratch& scratch);

// The k-th largest of scratch.maxima (-inf if there are fewer): at least k logits are not
// below it.
float KthBlockMax(int64_t vocab, int64_t k, const SampleScratch& scratch);

// Four words of Philox4x32-10 (Salmon et al., SC 2011).
struct PhiloxBlock {
  uint32_t word[4];
};
PhiloxBlock Philox4x32(uint64_t key, PhiloxBlock counter);

// 64 uniform bits.
uint64_t RandomBits(uint64_t seed, uint32_t choice, uint32_t token_index);

}  // namespace renga
