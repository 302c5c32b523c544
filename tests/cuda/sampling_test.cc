// The draw under the emulator: the token of kernels/sampling.h in every case, whatever
// the order of threads, and how often a row is read.

#include "kernels/cuda/sampling.h"

#include <gtest/gtest.h>

#include "tests/cuda/emulated/emulated_kernels.h"
#include "tests/cuda/expect_checks.h"
#include "tests/cuda/sampling_cases.h"
#include "tests/simt/simt_device.h"

namespace renga::test {
namespace {

std::vector<EmulatedKernel> Kernels() { return KernelsOf(EmulatedSamplingKernels()); }

TEST(Sampling, DrawsTheTokensOfTheCpu) {
  SimtDevice device(Kernels(), {.simt = {.counters = false}});
  ExpectAllOk(CheckSampling(device, CheckSize::kSmall));
  EXPECT_TRUE(device.reports().empty());
}

TEST(Sampling, OtherOrdersOfThreadsDrawTheSame) {
  const int64_t vocab = 1500;
  std::vector<float> logits;
  std::vector<cuda::DrawSpec> specs;
  for (int kind = 0; kind < kLogitKinds; ++kind) {
    const auto row = LogitsOf(static_cast<LogitKind>(kind), vocab, 3);
    logits.insert(logits.end(), row.begin(), row.end());
    specs.push_back({.logit_row = kind,
                     .temperature = 1.5f,
                     .top_k = 100,
                     .top_p = 0.95f,
                     .min_p = 0.001f});
    specs.push_back({.logit_row = kind, .temperature = 3.0f, .top_p = 0.8f});
  }
  for (const uint32_t seed : {1u, 77u}) {
    SimtDevice device(Kernels(), {.simt = {.counters = false, .seed = seed}});
    const Draws draws = DrawBoth(device, logits, vocab, specs, 18);
    EXPECT_EQ(draws.got, draws.expected) << "seed " << seed;
    EXPECT_TRUE(device.reports().empty());
  }
}

// How often a row of `kind` is read.
double PassesOf(LogitKind kind, cuda::DrawSpec spec) {
  const int64_t vocab = 32768;
  SimtDevice device(Kernels());
  const Draws draws = DrawBoth(device, LogitsOf(kind, vocab, 5), vocab, {spec}, 1);
  EXPECT_EQ(draws.got, draws.expected);
  return static_cast<double>(device.last_counters().global.read.sectors) * 32 /
         (static_cast<double>(vocab) * 4);
}

TEST(Sampling, ARowIsReadAsOftenAsPromised) {
  // Threads read their spec; all 16 warps look through the last bin of 128 logits.
  constexpr double kRest = 0.14;
  EXPECT_LE(PassesOf(LogitKind::kWide, {.temperature = 0.0f}), 1.02);
  EXPECT_LE(PassesOf(LogitKind::kWide, {.temperature = 1.0f}), 2 + kRest);
  EXPECT_LE(PassesOf(LogitKind::kWide, {.temperature = 1.0f, .min_p = 0.1f}), 2 + kRest);
  EXPECT_LE(PassesOf(LogitKind::kWide, {.temperature = 1.0f, .top_k = 40}), 3 + kRest);
  EXPECT_LE(PassesOf(LogitKind::kWide, {.temperature = 0.7f, .top_k = 40, .top_p = 0.9f}),
            3 + kRest);
  EXPECT_LE(PassesOf(LogitKind::kWide, {.temperature = 0.7f, .top_p = 0.9f}), 3 + kRest);
  // Flat: too many to list, so each border is found in passes over the row.
  EXPECT_LE(PassesOf(LogitKind::kNormal, {.temperature = 1.0f, .top_p = 0.9f}),
            8);  // Lanes that were apart are counted apart.
}

}  // namespace
}  // namespace renga::test
