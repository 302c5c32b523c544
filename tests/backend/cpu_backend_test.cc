// The fused steps: against a whole forward pass in double precision, and the sameness of
// results over company, slices, threads, instruction sets and plans.

#include "backend/cpu_backend.h"

#include <gtest/gtest.h>

#include "tests/backend/tiny_model.h"

namespace renga {
namespace {

using Row = std::vector<double>;

Row Times(const TinyMatrix& m, const Row& x) {
  Row out(static_cast<size_t>(m.rows), 0.0);
  for (size_t n = 0; n < out.size(); ++n) {
    for (size_t k = 0; k < x.size(); ++k) out[n] += m.values[n * x.size() + k] * x[k];
  }
  return out;
}

Row Norm(const Row& x, const std::vector<float>& weight) {
  double sum = 0.0;
  for (const double v : x) sum += v * v;
  const double r = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + 1e-5);
  Row out(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    out[i] = x[i] * r * static_cast<double>(weight[i]);
  return out;
}

void Rotate(const GraphShape& shape, int position, Row& x) {
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

Row AttendPlain(const GraphShape& shape, const Row& q, const Cache& cache) {
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
Row ReferenceLogits(const TinyModel& model, const std::vector<TokenId>& ids) {
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

std::vector<std::string> MachineIsas() {
  std::vector<std::string> names;
  for (const char* isa : {"portable", "avx2", "avx512", "amx"}) {
    if (MakeCpuBackend({.isa = isa, .threads = 1}).ok()) names.push_back(isa);
  }
  return names;
}

void ExpectClose(const std::vector<float>& logits, const Row& want, double share) {
  double largest = 0.0;
  for (const double value : want) largest = std::max(largest, std::abs(value));
  ASSERT_EQ(logits.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(logits[i]), want[i], largest * share) << i;
  }
}

const std::vector<std::vector<TensorType>> kTypeMixes = {
    {TensorType::kF32},
    {TensorType::kF16},
    {TensorType::kQ8_0},
    {TensorType::kQ4_1},
    // q, k and v of one stack differ, as do gate and up.
    {TensorType::kQ8_0, TensorType::kQ4_1, TensorType::kF16, TensorType::kF32,
     TensorType::kQ4_1, TensorType::kF32, TensorType::kQ8_0, TensorType::kQ4_1}};

TEST(CpuBackend, AForwardPassEqualsDoublePrecision) {
  for (const std::vector<TensorType>& types : kTypeMixes) {
    for (const RopeStyle style : {RopeStyle::kAdjacentPairs, RopeStyle::kHalves}) {
      GraphShape shape = TinyShape();
      shape.rope_style = style;
      const TinyModel model = MakeModel(types, shape);
      TinyRunner runner(model, {.threads = 2}, KvDtype::kF32);
      TinySequence s = MakeSequence(70, 1, runner.free_pages);
      const auto logits = runner.Step({&s}, {70});
      // Float weights: rounding alone. Quantised ones: 16-bit activations.
      const bool exact = types.size() == 1 &&
                         (types[0] == TensorType::kF32 || types[0] == TensorType::kF16);
      ExpectClose(logits[0], ReferenceLogits(model, s.ids), exact ? 2e-5 : 2e-3);
    }
  }
}

TEST(CpuBackend, WithInt8PagesAForwardPassStaysNearDoublePrecision) {
  const TinyModel model = MakeModel({TensorType::kF32}, TinyShape());
  TinyRunner runner(model, {.threads = 2}, KvDtype::kInt8);
  TinySequence s = MakeSequence(150, 1, runner.free_pages);
  const auto logits = runner.Step({&s}, {150});
  ExpectClose(logits[0], ReferenceLogits(model, s.ids), 1e-2);
}

TEST(CpuBackend, OddShapesWorkWithFloatWeights) {
  GraphShape shape = TinyShape();
  shape.dim = 50;
  shape.heads = 3;
  shape.kv_heads = 1;
  shape.head_dim = 10;
  shape.rope_dims = 6;
  shape.rope_inverse_frequencies = {1.0, 0.3, 0.1};
  shape.ffn = 37;
  const TinyModel model = MakeModel({TensorType::kF32, TensorType::kF16}, shape);
  for (const std::string& isa : MachineIsas()) {
    TinyRunner runner(model, {.isa = isa, .threads = 2}, KvDtype::kF32);
    TinySequence s = MakeSequence(20, 1, runner.free_pages);
    const auto logits = runner.Step({&s}, {20});
    ExpectClose(logits[0], ReferenceLogits(model, s.ids), 2e-5);
  }
}

// Lengths of a mixed batch; two of them cross a tree group.
constexpr int32_t kLengths[] = {1, 5, 64, 65, 130, 257, 300};

// Every sequence prefilled alone in one step, then one token: the logits of both.
std::vector<std::vector<float>> Alone(const TinyModel& model, KvDtype dtype) {
  std::vector<std::vector<float>> all;
  for (size_t i = 0; i < std::size(kLengths); ++i) {
    TinyRunner runner(model, {.isa = "portable", .threads = 1}, dtype);
    TinySequence s =
        MakeSequence(kLengths[i] + 1, static_cast<uint32_t>(i), runner.free_pages);
    all.push_back(runner.Step({&s}, {kLengths[i]})[0]);
    all.push_back(runner.Step({&s}, {1})[0]);
  }
  return all;
}

// The same in one batch, prefilled in slices of `slice`, then one token for all.
std::vector<std::vector<float>> Together(const TinyModel& model, KvDtype dtype,
                                         const CpuBackendOptions& options, int32_t slice,
                                         int32_t group_split) {
  TinyRunner runner(model, options, dtype);
  std::vector<TinySequence> sequences;
  for (size_t i = 0; i < std::size(kLengths); ++i) {
    sequences.push_back(
        MakeSequence(kLengths[i] + 1, static_cast<uint32_t>(i), runner.free_pages));
  }
  std::vector<std::vector<float>> all(2 * std::size(kLengths));
  for (bool more = true; more;) {
    std::vector<TinySequence*> active;
    std::vector<int32_t> counts;
    std::vector<size_t> places;
    int32_t budget = 690;
    for (size_t i = 0; i < sequences.size() && budget > 0; ++i) {
      const int32_t left = kLengths[i] - sequences[i].done;
      if (left <= 0) continue;
      active.push_back(&sequences[i]);
      counts.push_back(std::min({left, slice, budget}));
      budget -= counts.back();
      places.push_back(i);
    }
    more = !active.empty();
    if (!more) break;
    const auto logits = runner.Step(active, counts, group_split);
    for (size_t i = 0; i < active.size(); ++i) all[2 * places[i]] = logits[i];
  }
  std::vector<TinySequence*> active;
  for (TinySequence& s : sequences) active.push_back(&s);
  const auto logits =
      runner.Step(active, std::vector<int32_t>(active.size(), 1), group_split);
  for (size_t i = 0; i < active.size(); ++i) all[2 * i + 1] = logits[i];
  return all;
}

TEST(CpuBackend, ResultsDoNotDependOnCompanySlicesThreadsInstructionSetsOrPlans) {
  for (const std::vector<TensorType>& types : kTypeMixes) {
    const TinyModel model = MakeModel(types, TinyShape());
    for (const KvDtype dtype : {KvDtype::kF16, KvDtype::kF32, KvDtype::kInt8}) {
      if (dtype != KvDtype::kF16 && types != kTypeMixes[3]) continue;
      const auto expected = Alone(model, dtype);
      for (const std::string& isa : MachineIsas()) {
        for (const int32_t threads : {1, 2, 3}) {
          const int32_t slice = threads == 1 ? 17 : threads == 2 ? 1000 : 64;
          const auto got = Together(model, dtype, {.isa = isa, .threads = threads}, slice,
                                    threads - 1);
          ASSERT_EQ(got.size(), expected.size());
          for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_EQ(std::memcmp(got[i].data(), expected[i].data(), got[i].size() * 4),
                      0)
                << isa << " " << threads << " threads, " << TensorTypeName(types[0])
                << ", result " << i;
          }
        }
      }
    }
  }
}

TEST(CpuBackend, SampleIsDeterministicPerSeedAndFlagsNonFiniteLogits) {
  TinyModel model = MakeModel({TensorType::kF32}, TinyShape());
  TinyRunner runner(model, {.threads = 2}, KvDtype::kF16);
  TinySequence s = MakeSequence(9, 1, runner.free_pages);
  const auto logits = runner.Step({&s}, {9});
  const std::vector<SampleSpec> specs = {
      {.logit_row = 0},
      {.logit_row = 0, .temperature = 5.0f, .seed = 7},
      {.logit_row = 0, .temperature = 5.0f, .seed = 7}};
  std::vector<SampleResult> results(3);
  ASSERT_TRUE(runner.backend().Sample(specs, results).ok());
  const auto best = std::max_element(logits[0].begin(), logits[0].end());
  EXPECT_EQ(results[0].token, best - logits[0].begin());
  EXPECT_EQ(results[1].token, results[2].token);
  EXPECT_TRUE(results[1].finite);

  model.output_norm[3] = std::numeric_limits<float>::quiet_NaN();
  TinyRunner broken(model, {.threads = 2}, KvDtype::kF16);
  TinySequence t = MakeSequence(9, 1, broken.free_pages);
  broken.Step({&t}, {9});
  ASSERT_TRUE(broken.backend().Sample(specs, results).ok());
  for (const SampleResult& result : results) EXPECT_FALSE(result.finite);
}

TEST(CpuBackend, AllInstructionSetsShareOneNumericsId) {
  const TinyModel model = MakeModel({TensorType::kF32}, TinyShape());
  for (const std::string& isa : MachineIsas()) {
    TinyRunner runner(model, {.isa = isa, .threads = 2}, KvDtype::kF16);
    EXPECT_EQ(runner.backend().info().name, "cpu/" + isa);
    EXPECT_EQ(runner.backend().info().numerics_id, "renga-cpu-1/kv-f16.1");
    EXPECT_EQ(runner.backend().info().threads, 2);
    TinyRunner int8(model, {.isa = isa, .threads = 1}, KvDtype::kInt8);
    EXPECT_EQ(int8.backend().info().numerics_id, "renga-cpu-1/kv-int8.1");
  }
}

}  // namespace
}  // namespace renga
