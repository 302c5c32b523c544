// A whole small transformer of the `llama` family in double precision, straight from its
// definition: every position attends to all positions before it and itself, with one
// softmax over all of them. Slow and plain.
//
// Thread safety: plain values and functions.

#pragma once

#include <cstdint>
#include <vector>

#include "tests/reference/ops.h"

namespace renga::reference {

struct LlamaLayer {
  Vector attention_norm;
  Matrix q, k, v;        // [heads * head_dim, dim], [kv_heads * head_dim, dim] twice
  Matrix attention_out;  // [dim, heads * head_dim]
  Vector mlp_norm;
  Matrix gate, up;  // [ffn, dim]
  Matrix down;      // [dim, ffn]
};

struct Llama {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  double norm_eps = 0.0;
  double rope_base = 0.0;
  int64_t rope_dims = 0;
  Matrix embedding;  // [vocab, dim]
  Matrix head;       // [vocab, dim]
  Vector output_norm;
  std::vector<LlamaLayer> layers;
};

// Logits after each of the tokens: [tokens][vocab].
std::vector<Vector> LlamaLogits(const Llama& model, const std::vector<int32_t>& tokens);

// What the scaling of random test models promises: standard deviation of the attention
// scores of the first layer's heads over these tokens.
double ScoreDeviation(const Llama& model, const std::vector<int32_t>& tokens);

}  // namespace renga::reference
