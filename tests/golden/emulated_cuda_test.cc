// The default model's first tokens on the CUDA backend under the emulator: the same
// bounds as for the CPU.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "tests/cuda/emulated_backend.h"
#include "tests/golden/smollm2_model.h"

namespace renga {
namespace {

constexpr size_t kShortPrompt = 1;  // Of the goldens: 27 tokens.
constexpr size_t kTokens = 4;

TEST(EmulatedCuda, TheDefaultModelsFirstTokensAreThoseOfTheReference) {
  // What the kernels may do wrong is looked for in their own tests.
  test::EmulatedCuda cuda =
      test::MakeEmulatedCuda({.backend = {.threads = 2},
                              .device = {.simt = {.checks = false, .counters = false},
                                         .total_bytes = int64_t{4} << 30}});
  SmolLm2 model(std::move(cuda.backend));
  ASSERT_TRUE(model.status().ok())
      << model.status().ToString() << "; scripts/test.sh fetches the model";
  const Golden golden = ReadGoldens()[kShortPrompt];
  auto logits = model.Step(golden.prompt, 0);
  ASSERT_TRUE(logits.ok()) << logits.status().ToString();
  double largest = 0.0;
  double sum = 0.0;
  for (size_t k = 0; k < golden.top_ids.size(); ++k) {
    const double error = std::fabs((*logits)[static_cast<size_t>(golden.top_ids[k])] -
                                   golden.top_logits[k]);
    largest = std::max(largest, error);
    sum += error;
  }
  const double mean = sum / static_cast<double>(golden.top_ids.size());
  std::printf("%s: largest %.3f mean %.3f KL %.5f\n", model.backend_name().c_str(),
              largest, mean, Divergence(golden, *logits));
  EXPECT_LE(largest, kLargestError);
  EXPECT_LE(mean, kMeanError);

  auto position = static_cast<int32_t>(golden.prompt.size());
  size_t compared = 0;
  for (size_t i = 0; i < kTokens; ++i) {
    const TokenId token = Greedy(*logits);
    if (token != golden.greedy_ids[i]) {
      EXPECT_LT(golden.greedy_gaps[i], kDecisiveGap) << "token " << i;
      break;
    }
    ++compared;
    if (i + 1 == kTokens) break;
    logits = model.Step({&token, 1}, position++);
    ASSERT_TRUE(logits.ok()) << logits.status().ToString();
  }
  EXPECT_GE(compared, 2u);
}

}  // namespace
}  // namespace renga
