// A forward pass of the tiny model in double precision, straight from the definition.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/backend/tiny_model.h"

namespace renga {

using Row = std::vector<double>;

inline Row Times(const TinyMatrix& m, const Row& x) {
  Row out(static_cast<size_t>(m.rows), 0.0);
  for (size_t n = 0; n < out.size(); ++n) {
    for (size_t k = 0; k < x.size(); ++k) out[n] += m.values[n * x.size() + k] * x[k];
  }
  return out;
}

inline Row Norm(const Row& x, const std::vector<float>& weight) {
  double sum = 0.0;
  for (const double v : x) sum += v * v;
  const double r = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + 1e-5);
  Row out(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    out[i] = x[i] * r * static_cast<double>(weight[i]);
  return out;
}

inline void Rotate(const GraphShape& shape, int position, Row& x) {
  const size_t hd = static_cast<size_t>(shape.head_dim);
  const size_t half = static_cast<size_t>(shape.rope_dims) / 2;
  for (size_t head = 0; head < x.size(); head += hd) {
    for (size_t i = 0; i < half; ++i) {
      const bool halves = shape.rope_style == RopeStyle::kHalves;
      double& a = x[head + (halves ? i : 2 * i)];
      double& b = x[head + (halves ? i + half : 2 * i + 1)];
      const double angle = position * shape.rope_inverse_frequencies[i];
      const double first = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = first;
    }
  }
}

struct Cache {
  std::vector<Row> k, v;
};

inline Row AttendPlain(const GraphShape& shape, const Row& q, const Cache& cache) {
  const size_t hd = static_cast<size_t>(shape.head_dim);
  const size_t share = static_cast<size_t>(shape.heads / shape.kv_heads);
  Row out(q.size(), 0.0);
  for (size_t head = 0; head < static_cast<size_t>(shape.heads); ++head) {
    const size_t kv = head / share * hd;
    Row p;
    for (const Row& k : cache.k) {
      double score = 0.0;
      for (size_t i = 0; i < hd; ++i) score += q[head * hd + i] * k[kv + i];
      p.push_back(score / std::sqrt(static_cast<double>(hd)));
    }
    const double largest = *std::max_element(p.begin(), p.end());
    double total = 0.0;
    for (double& value : p) total += value = std::exp(value - largest);
    for (size_t t = 0; t < p.size(); ++t) {
      for (size_t i = 0; i < hd; ++i) {
        out[head * hd + i] += p[t] / total * cache.v[t][kv + i];
      }
    }
  }
  return out;
}

// Logits of the last of `ids`, in double precision, from the definition.
inline Row ReferenceLogits(const TinyModel& model, const std::vector<TokenId>& ids) {
  const GraphShape& shape = model.shape;
  std::vector<Cache> caches(model.layers.size());
  Row x;
  for (size_t t = 0; t < ids.size(); ++t) {
    const auto row = model.embedding.values.begin() + ids[t] * shape.dim;
    x.assign(row, row + shape.dim);
    for (size_t l = 0; l < model.layers.size(); ++l) {
      const TinyLayer& layer = model.layers[l];
      const Row h = Norm(x, layer.attention_norm);
      Row q = Times(layer.q, h);
      Row k = Times(layer.k, h);
      Rotate(shape, static_cast<int>(t), q);
      Rotate(shape, static_cast<int>(t), k);
      caches[l].k.push_back(k);
      caches[l].v.push_back(Times(layer.v, h));
      const Row o = Times(layer.out, AttendPlain(shape, q, caches[l]));
      for (size_t i = 0; i < x.size(); ++i) x[i] += o[i];
      const Row g = Norm(x, layer.mlp_norm);
      Row act = Times(layer.gate, g);
      const Row up = Times(layer.up, g);
      for (size_t i = 0; i < act.size(); ++i)
        act[i] = act[i] / (1 + std::exp(-act[i])) * up[i];
      const Row d = Times(layer.down, act);
      for (size_t i = 0; i < x.size(); ++i) x[i] += d[i];
    }
  }
  return Times(model.embedding, Norm(x, model.output_norm));
}

inline void ExpectClose(const std::vector<float>& logits, const Row& want, double share) {
  double largest = 0.0;
  for (const double value : want) largest = std::max(largest, std::abs(value));
  ASSERT_EQ(logits.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(logits[i]), want[i], largest * share) << i;
  }
}

}  // namespace renga
