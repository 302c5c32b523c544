// Sampling: logits -> one token. The definition for every device and instruction set:
// scalar code, no library exp, sums in a fixed order.
//
//   1. A NaN or +inf among the logits, or no finite logit: nothing is drawn.
//   2. temperature 0 (below 1e-6): the smallest id among the largest logits; so does
//      top_k == 1 and min_p >= 1.
//   3. weight(i) = exp2((logit(i) - max) * log2(e) / temperature), so max has weight 1.
//   4. top_k: the k largest logits stay (ties: smaller ids first).
//   5. top_p: of these, in falling order (ties: smaller ids first), the shortest head
//      with at least top_p of their mass stays; always at least one.
//   6. min_p: weights below min_p go.
//   7. With u in [0, 1) from Philox4x32-10, key = seed, counter = (choice, token_index,
//   0,
//      0): the first id, in rising order, whose cumulative weight exceeds u * total.
//
// Nothing sorts the vocabulary: a histogram over log-weights finds the bin that holds the
// border, and only that bin is sorted.

#pragma once

#include <stdint.h>

namespace renga {

struct SampleArgs {
  const float* logits = nullptr;  // [vocab]
  int64_t vocab = 0;
  float temperature = 1.0f;
  int32_t top_k = 0;   // <= 0 or >= vocab: off.
  float top_p = 1.0f;  // >= 1: off.
  float min_p = 0.0f;  // <= 0: off.
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint32_t token_index = 0;
};

// Memory for one call; contents do not matter before or after.
struct SampleScratch {
  static constexpr int kBins = 2048;
  float* weights = nullptr;      // [vocab]
  int32_t* ids = nullptr;        // [vocab]
  int32_t* border = nullptr;     // [vocab]
  double* bin_mass = nullptr;    // [kBins]
  int64_t* bin_count = nullptr;  // [kBins]
};

// The token, or -1 where nothing can be drawn (see 1).
int32_t SampleToken(const SampleArgs& args, const SampleScratch& scratch);

// The smallest id among the largest logits; -1 as above.
int32_t Argmax(const float* logits, int64_t vocab);

// Four words of Philox4x32-10 (Salmon et al., SC 2011).
struct PhiloxBlock {
  uint32_t word[4];
};
PhiloxBlock Philox4x32(uint64_t key, PhiloxBlock counter);

// [0, 1) with 53 bits.
double UniformOf(uint64_t seed, uint32_t choice, uint32_t token_index);

}  // namespace renga
