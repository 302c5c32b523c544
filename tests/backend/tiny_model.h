// A tiny random model and a driver that runs it on a Backend step by step, for the
// backend's own tests. Weights are kept as doubles for the reference in cpu_backend_test.

#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu_backend.h"
#include "renga/backend.h"

namespace renga {

struct TinyMatrix {
  TensorType type;
  int64_t rows, cols;
  std::vector<std::byte> bytes;
  std::vector<double> values;  // [rows, cols]
  TensorView view() const { return {type, rows, cols, bytes.data()}; }
};

// A power of two as f16, so that the values are exact in every form.
inline void PutHalf(std::vector<std::byte>& out, int exponent, bool negative = false) {
  const uint16_t half =
      static_cast<uint16_t>((negative ? 0x8000 : 0) | (exponent + 15) << 10);
  out.push_back(static_cast<std::byte>(half & 255));
  out.push_back(static_cast<std::byte>(half >> 8));
}

inline TinyMatrix MakeMatrix(TensorType type, int64_t rows, int64_t cols,
                             std::mt19937& random) {
  TinyMatrix m{.type = type, .rows = rows, .cols = cols, .bytes = {}, .values = {}};
  const auto put = [&](const auto& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    m.bytes.insert(m.bytes.end(), bytes, bytes + sizeof(value));
  };
  for (int64_t i = 0; i < rows * cols; i += 32) {
    const int64_t count = std::min<int64_t>(32, rows * cols - i);
    if (type == TensorType::kF32) {
      for (int64_t j = 0; j < count; ++j) {
        const float value =
            static_cast<float>(static_cast<int>(random() % 255) - 127) / 512.0f;
        put(value);
        m.values.push_back(static_cast<double>(value));
      }
    } else if (type == TensorType::kF16) {
      for (int64_t j = 0; j < count; ++j) {
        const int exponent = -3 - static_cast<int>(random() % 4);
        const uint16_t sign = random() % 2 == 0 ? 0 : 0x8000;
        put(static_cast<uint16_t>(sign | (exponent + 15) << 10));
        m.values.push_back(std::ldexp(sign == 0 ? 1.0 : -1.0, exponent));
      }
    } else if (type == TensorType::kQ8_0) {
      PutHalf(m.bytes, -9);
      for (int j = 0; j < 32; ++j) {
        const int q = static_cast<int>(random() % 256) - 128;
        put(static_cast<int8_t>(q));
        m.values.push_back(std::ldexp(q, -9));
      }
    } else {
      PutHalf(m.bytes, -5);
      PutHalf(m.bytes, -2, true);
      int q[32];
      for (int& code : q) code = static_cast<int>(random() % 16);
      for (int j = 0; j < 16; ++j) put(static_cast<uint8_t>(q[j] | q[j + 16] << 4));
      for (const int code : q) m.values.push_back(std::ldexp(code, -5) - 0.25);
    }
  }
  return m;
}

struct TinyLayer {
  std::vector<float> attention_norm, mlp_norm;
  TinyMatrix q, k, v, out, gate, up, down;
};

struct TinyModel {
  GraphShape shape;
  TinyMatrix embedding;
  std::vector<float> output_norm;
  std::vector<TinyLayer> layers;
};

// `types`: of the matrices in turn; one for all, or several for a mixed model.
inline TinyModel MakeModel(const std::vector<TensorType>& types, GraphShape shape) {
  std::mt19937 random(42);
  size_t next = 0;
  const auto matrix = [&](int64_t rows, int64_t cols) {
    return MakeMatrix(types[next++ % types.size()], rows, cols, random);
  };
  const auto vector = [&](int64_t n) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values)
      value = 0.5f + static_cast<float>(random() % 100) / 100.0f;
    return values;
  };
  const int64_t q_width = int64_t{shape.heads} * shape.head_dim;
  const int64_t kv_width = int64_t{shape.kv_heads} * shape.head_dim;
  TinyModel model{.shape = shape,
                  .embedding = matrix(shape.vocab, shape.dim),
                  .output_norm = vector(shape.dim),
                  .layers = {}};
  for (int layer = 0; layer < shape.layers; ++layer) {
    model.layers.push_back({.attention_norm = vector(shape.dim),
                            .mlp_norm = vector(shape.dim),
                            .q = matrix(q_width, shape.dim),
                            .k = matrix(kv_width, shape.dim),
                            .v = matrix(kv_width, shape.dim),
                            .out = matrix(shape.dim, q_width),
                            .gate = matrix(shape.ffn, shape.dim),
                            .up = matrix(shape.ffn, shape.dim),
                            .down = matrix(shape.dim, shape.ffn)});
  }
  return model;
}

inline GraphShape TinyShape() {
  GraphShape shape{.layers = 2,
                   .dim = 64,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_dim = 16,
                   .ffn = 96,
                   .vocab = 101,
                   .context = 600,
                   .rope_dims = 16,
                   .rope_style = RopeStyle::kAdjacentPairs,
                   .norm_eps = 1e-5f,
                   .rope_inverse_frequencies = {}};
  for (int i = 0; i < 8; ++i) {
    shape.rope_inverse_frequencies.push_back(std::pow(10000.0, -i / 8.0));
  }
  return shape;
}

// One sequence of a test: its ids and pages; `done` positions are in the cache.
struct TinySequence {
  std::vector<TokenId> ids;
  std::vector<PageId> pages;
  int32_t done = 0;
  PageId open_page = -1;  // Given by the runner's first step.
};

inline TinySequence MakeSequence(int32_t length, uint32_t seed,
                                 std::vector<PageId>& free_pages) {
  TinySequence sequence;
  std::mt19937 random(seed);
  for (int32_t i = 0; i < length; ++i) {
    sequence.ids.push_back(static_cast<TokenId>(random() % 101));
  }
  for (int32_t i = 0; i < (length + 63) / 64; ++i) {
    sequence.pages.push_back(free_pages.back());
    free_pages.pop_back();
  }
  return sequence;
}

class TinyRunner {
 public:
  static constexpr int64_t kPages = 64;
  static constexpr int32_t kSequences = 40;

  TinyRunner(const TinyModel& model, const CpuBackendOptions& options, KvDtype dtype)
      : TinyRunner(model, std::move(MakeCpuBackend(options)).value(), dtype) {}

  TinyRunner(const TinyModel& model, std::unique_ptr<Backend> backend, KvDtype dtype)
      : backend_(std::move(backend)), layers_(model.layers.size()) {
    BackendLimits limits{.max_rows = 700,
                         .max_logit_rows = 40,
                         .max_sequences = kSequences,
                         .max_pages = kPages};
    EXPECT_TRUE(backend_->Configure(model.shape, limits).ok());
    embedding_ = Load({model.embedding.view()});
    output_norm_ = backend_->LoadVector(model.output_norm).value();
    for (size_t i = 0; i < layers_.size(); ++i) {
      const TinyLayer& layer = model.layers[i];
      layers_[i] = {.attention_norm = backend_->LoadVector(layer.attention_norm).value(),
                    .qkv = Load({layer.q.view(), layer.k.view(), layer.v.view()}),
                    .attention_out = Load({layer.out.view()}),
                    .mlp_norm = backend_->LoadVector(layer.mlp_norm).value(),
                    .gate_up = Load({layer.gate.view(), layer.up.view()}),
                    .down = Load({layer.down.view()})};
    }
    const GraphShape& s = model.shape;
    kv_heads_ = s.kv_heads;
    EXPECT_TRUE(
        backend_->CreateKvPool({s.layers, s.kv_heads, s.head_dim, dtype}, kPages).ok());
    for (PageId page = kPages - 1; page >= 0; --page) free_pages.push_back(page);
  }

  Backend& backend() { return *backend_; }
  std::vector<PageId> free_pages;

  // Computes the next `counts[i]` positions of each sequence in one step; returns the
  // logits of each sequence's last row. `group_split`: tree groups per item, 0 = whole.
  std::vector<std::vector<float>> Step(const std::vector<TinySequence*>& sequences,
                                       const std::vector<int32_t>& counts,
                                       int32_t group_split = 0) {
    std::vector<TokenId> tokens;
    std::vector<SequenceRows> rows;
    std::vector<int32_t> logit_rows;
    for (size_t i = 0; i < sequences.size(); ++i) {
      TinySequence& s = *sequences[i];
      if (s.open_page < 0) s.open_page = next_open_page_++;
      rows.push_back(
          {static_cast<int32_t>(tokens.size()), counts[i], s.done, s.pages, s.open_page});
      tokens.insert(tokens.end(), s.ids.begin() + s.done,
                    s.ids.begin() + s.done + counts[i]);
      s.done += counts[i];
      logit_rows.push_back(static_cast<int32_t>(tokens.size()) - 1);
    }
    std::vector<AttendItem> items = Plan(rows, group_split);
    const StepBatch batch{tokens, rows, logit_rows};
    Forward(batch, {items});
    std::vector<std::vector<float>> logits;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const auto span = backend_->Logits(static_cast<int32_t>(i)).value();
      logits.emplace_back(span.begin(), span.end());
    }
    return logits;
  }

  void Forward(const StepBatch& batch, const AttendPlan& plan) {
    ASSERT_EQ(TryForward(batch, plan).ToString(), "OK");
  }

  // The first failure, if one call fails.
  Status TryForward(const StepBatch& batch, const AttendPlan& plan) {
    Status status = backend_->BeginStep(batch, plan);
    if (status.ok()) status = backend_->Embed(embedding_);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const int32_t layer = static_cast<int32_t>(i);
      if (status.ok()) status = backend_->NormQkvRopeAppend(layer, layers_[i]);
      if (status.ok()) status = backend_->Attend(layer);
      if (status.ok()) status = backend_->OutProjAdd(layers_[i]);
      if (status.ok()) status = backend_->Mlp(layers_[i]);
    }
    if (status.ok()) status = backend_->Head(output_norm_, embedding_);
    return status;
  }

  // Items of at most 24 rows, or of one row with `group_split` groups each.
  std::vector<AttendItem> Plan(const std::vector<SequenceRows>& rows,
                               int32_t group_split) {
    std::vector<AttendItem> items;
    for (size_t s = 0; s < rows.size(); ++s) {
      for (int32_t head = 0; head < kv_heads_; ++head) {
        for (int32_t row = 0; row < rows[s].rows; row += 24) {
          const int32_t count = std::min(24, rows[s].rows - row);
          const int32_t groups = (rows[s].first_position + row + count - 1) / 256 + 1;
          const int32_t step = group_split == 0 ? groups : group_split;
          for (int32_t g = 0; g < groups; g += step) {
            items.push_back(
                {static_cast<int32_t>(s), head, rows[s].first_row + row, count, g, step});
          }
        }
      }
    }
    return items;
  }

 private:
  MatrixId Load(const std::vector<TensorView>& views) {
    StatusOr<MatrixId> id = backend_->LoadMatrix(views);
    EXPECT_EQ(id.status().ToString(), "OK");
    return id.value();
  }

  std::unique_ptr<Backend> backend_;
  std::vector<LayerWeights> layers_;
  MatrixId embedding_{};
  VectorId output_norm_{};
  int32_t kv_heads_ = 0;
  PageId next_open_page_ = 0;
};

}  // namespace renga
