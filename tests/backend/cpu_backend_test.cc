// The fused steps: against a whole forward pass in double precision, and the sameness of
// results over company, slices, threads, instruction sets and plans.

#include "backend/cpu_backend.h"

#include <gtest/gtest.h>

#include "tests/backend/tiny_company.h"
#include "tests/backend/tiny_model.h"
#include "tests/backend/tiny_reference.h"

namespace renga {
namespace {

std::vector<std::string> MachineIsas() {
  std::vector<std::string> names;
  for (const char* isa : {"portable", "avx2", "avx512", "amx"}) {
    if (MakeCpuBackend({.isa = isa, .threads = 1}).ok()) names.push_back(isa);
  }
  return names;
}

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

TEST(CpuBackend, ResultsDoNotDependOnCompanySlicesThreadsInstructionSetsOrPlans) {
  for (const std::vector<TensorType>& types : kTypeMixes) {
    const TinyModel model = MakeModel(types, TinyShape());
    for (const KvDtype dtype : {KvDtype::kF16, KvDtype::kF32, KvDtype::kInt8}) {
      if (dtype != KvDtype::kF16 && types != kTypeMixes[3]) continue;
      const auto expected = TinyAlone(
          [&] { return TinyRunner(model, {.isa = "portable", .threads = 1}, dtype); });
      for (const std::string& isa : MachineIsas()) {
        for (const int32_t threads : {1, 2, 3}) {
          const int32_t slice = threads == 1 ? 17 : threads == 2 ? 1000 : 64;
          TinyRunner runner(model, {.isa = isa, .threads = threads}, dtype);
          const auto got = TinyTogether(runner, slice, threads - 1);
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
