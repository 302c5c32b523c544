#include "tests/reference/llama.h"

#include <cmath>

namespace renga::reference {
namespace {

// Keys and values of one layer, [position][kv head].
struct Memory {
  std::vector<std::vector<Vector>> keys;
  std::vector<std::vector<Vector>> values;
};

Vector InverseFrequencies(const Llama& model) {
  Vector frequencies;
  for (int64_t i = 0; i < model.rope_dims / 2; ++i) {
    const double exponent =
        -2.0 * static_cast<double>(i) / static_cast<double>(model.rope_dims);
    frequencies.push_back(std::pow(model.rope_base, exponent));
  }
  return frequencies;
}

std::vector<Vector> SplitHeads(const Vector& x, int64_t head_dim) {
  std::vector<Vector> heads;
  for (auto start = x.begin(); start != x.end(); start += head_dim) {
    heads.emplace_back(start, start + head_dim);
  }
  return heads;
}

std::vector<Vector> RotatedHeads(const Llama& model, const Vector& x, int64_t position) {
  const Vector frequencies = InverseFrequencies(model);
  std::vector<Vector> heads = SplitHeads(x, model.head_dim);
  for (Vector& head : heads) RotateAdjacentPairs(head.data(), frequencies, position);
  return heads;
}

void AddTo(Vector& x, const Vector& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

Vector Attention(const Llama& model, const LlamaLayer& layer, const Vector& h,
                 int64_t position, Memory& memory) {
  memory.keys.push_back(RotatedHeads(model, MatVec(layer.k, h), position));
  memory.values.push_back(SplitHeads(MatVec(layer.v, h), model.head_dim));
  const std::vector<Vector> queries = RotatedHeads(model, MatVec(layer.q, h), position);
  Vector joined;
  for (int64_t head = 0; head < model.heads; ++head) {
    const auto kv_head = static_cast<size_t>(head / (model.heads / model.kv_heads));
    std::vector<Vector> keys, values;
    for (const auto& at_position : memory.keys) keys.push_back(at_position[kv_head]);
    for (const auto& at_position : memory.values) values.push_back(at_position[kv_head]);
    const Vector output = Attend(queries[static_cast<size_t>(head)], keys, values);
    joined.insert(joined.end(), output.begin(), output.end());
  }
  return MatVec(layer.attention_out, joined);
}

Vector Mlp(const LlamaLayer& layer, const Vector& h) {
  const Vector gate = MatVec(layer.gate, h);
  Vector hidden = MatVec(layer.up, h);
  for (size_t i = 0; i < hidden.size(); ++i) hidden[i] *= Silu(gate[i]);
  return MatVec(layer.down, hidden);
}

}  // namespace

std::vector<Vector> LlamaLogits(const Llama& model, const std::vector<int32_t>& tokens) {
  std::vector<Memory> memories(model.layers.size());
  std::vector<Vector> logits;
  for (size_t position = 0; position < tokens.size(); ++position) {
    Vector x = model.embedding.Row(tokens[position]);
    for (size_t i = 0; i < model.layers.size(); ++i) {
      const LlamaLayer& layer = model.layers[i];
      const Vector h = RmsNorm(x, layer.attention_norm, model.norm_eps);
      AddTo(x, Attention(model, layer, h, static_cast<int64_t>(position), memories[i]));
      AddTo(x, Mlp(layer, RmsNorm(x, layer.mlp_norm, model.norm_eps)));
    }
    logits.push_back(MatVec(model.head, RmsNorm(x, model.output_norm, model.norm_eps)));
  }
  return logits;
}

double ScoreDeviation(const Llama& model, const std::vector<int32_t>& tokens) {
  const LlamaLayer& layer = model.layers.at(0);
  std::vector<std::vector<Vector>> queries, keys;
  for (size_t position = 0; position < tokens.size(); ++position) {
    const Vector h = RmsNorm(model.embedding.Row(tokens[position]), layer.attention_norm,
                             model.norm_eps);
    const auto at = static_cast<int64_t>(position);
    queries.push_back(RotatedHeads(model, MatVec(layer.q, h), at));
    keys.push_back(RotatedHeads(model, MatVec(layer.k, h), at));
  }
  double count = 0.0, squares = 0.0;
  for (const auto& query : queries) {
    for (const auto& key : keys) {
      double dot = 0.0;
      for (size_t i = 0; i < key[0].size(); ++i) dot += query[0][i] * key[0][i];
      squares += dot * dot / static_cast<double>(model.head_dim);
      count += 1.0;
    }
  }
  return std::sqrt(squares / count);
}

}  // namespace renga::reference
