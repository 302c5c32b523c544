// The real default model against numbers from Hugging Face transformers (README.md here).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/golden/smollm2_model.h"

namespace renga {
namespace {

// The portable kernels are slow: they take the short prompts and one answer, and show
// below that they give the same bits.
std::vector<Golden> GoldensFor(const std::string& isa) {
  std::vector<Golden> goldens = ReadGoldens();
  if (isa == "portable") {
    std::erase_if(goldens,
                  [](const Golden& golden) { return golden.prompt.size() > 40; });
  }
  return goldens;
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, TopLogitsAreThoseOfTheReference) {
  SmolLm2 model(GetParam());
  ASSERT_TRUE(model.status().ok())
      << model.status().ToString() << "; scripts/test.sh fetches the model";
  const std::vector<Golden> goldens = GoldensFor(GetParam());
  ASSERT_EQ(goldens.size(), GetParam() == "portable" ? 3u : 7u);
  double divergence = 0.0;
  for (size_t i = 0; i < goldens.size(); ++i) {
    const Golden& golden = goldens[i];
    const auto logits = model.Step(golden.prompt, 0);
    ASSERT_TRUE(logits.ok()) << logits.status().ToString();
    double largest = 0.0, sum = 0.0;
    for (size_t k = 0; k < golden.top_ids.size(); ++k) {
      const double error = std::fabs((*logits)[static_cast<size_t>(golden.top_ids[k])] -
                                     golden.top_logits[k]);
      largest = std::max(largest, error);
      sum += error;
    }
    const double mean = sum / static_cast<double>(golden.top_ids.size());
    const double kl = Divergence(golden, *logits);
    divergence += kl / static_cast<double>(goldens.size());
    std::printf("%s prompt %zu: largest %.3f mean %.3f KL %.5f\n",
                model.backend_name().c_str(), i, largest, mean, kl);
    EXPECT_LE(largest, kLargestError) << "prompt " << i;
    EXPECT_LE(mean, kMeanError) << "prompt " << i;
  }
  std::printf("%s mean KL %.5f\n", model.backend_name().c_str(), divergence);
}

// After an undecided position both may go on differently: the comparison ends there.
TEST_P(GoldenTest, GreedyIdsAreThoseOfTheReferenceWhileItIsDecided) {
  SmolLm2 model(GetParam());
  ASSERT_TRUE(model.status().ok()) << model.status().ToString();
  std::vector<Golden> goldens = GoldensFor(GetParam());
  if (GetParam() == "portable") goldens.resize(1);
  size_t compared = 0, known = 0;
  for (const Golden& golden : goldens) {
    known += golden.greedy_ids.size();
    auto logits = model.Step(golden.prompt, 0);
    auto position = static_cast<int32_t>(golden.prompt.size());
    for (size_t i = 0; i < golden.greedy_ids.size(); ++i) {
      ASSERT_TRUE(logits.ok()) << logits.status().ToString();
      const TokenId token = Greedy(*logits);
      if (token != golden.greedy_ids[i]) {
        EXPECT_LE(golden.greedy_gaps[i], kDecisiveGap)
            << "answer token " << i << " after " << golden.prompt.size();
        break;
      }
      ++compared;
      if (token == kEndOfTurn) break;
      logits = model.Step({&token, 1}, position++);
    }
  }
  std::printf("%s: %zu greedy ids equal\n", model.backend_name().c_str(), compared);
  EXPECT_GE(compared, known / 2);  // Else there was nearly nothing to compare.
}

TEST(GoldenIsaTest, PortableAndBestKernelsGiveTheSameBits) {
  SmolLm2 portable("portable"), best("auto");
  ASSERT_TRUE(portable.status().ok()) << portable.status().ToString();
  ASSERT_TRUE(best.status().ok()) << best.status().ToString();
  const Golden golden = ReadGoldens()[1];
  const auto expected = portable.Step(golden.prompt, 0);
  const auto actual = best.Step(golden.prompt, 0);
  ASSERT_TRUE(expected.ok() && actual.ok());
  EXPECT_EQ(*expected, *actual);
}

// What `fast` costs: its noise moves logits, but the distribution stays near. With 8 bits
// for every block the mean is 0.0066 here, and two prompts are above 0.006.
TEST(FastPrecisionTest, KeepsTheReferencesDistribution) {
  SmolLm2 model("auto", "fast");
  ASSERT_TRUE(model.status().ok()) << model.status().ToString();
  const std::vector<Golden> goldens = ReadGoldens();
  double divergence = 0.0;
  for (const Golden& golden : goldens) {
    const auto logits = model.Step(golden.prompt, 0);
    ASSERT_TRUE(logits.ok()) << logits.status().ToString();
    const double kl = Divergence(golden, *logits);
    std::printf("fast: KL %.5f\n", kl);
    EXPECT_LE(kl, 0.006);
    divergence += kl / static_cast<double>(goldens.size());
  }
  std::printf("fast: mean KL %.5f\n", divergence);
  EXPECT_LE(divergence, 0.004);
}

INSTANTIATE_TEST_SUITE_P(Isa, GoldenTest, testing::Values("portable", "auto"),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace renga
