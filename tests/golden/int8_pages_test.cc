// What int8 pages cost on the default model: the divergence of its predictions from those
// with f16 pages, over a text. The bound is ten times what was measured.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu_backend.h"
#include "formats/gguf_file.h"
#include "model/transformer.h"
#include "text/load_tokenizer.h"

namespace renga {
namespace {

constexpr double kMostMeanKl = 0.0002;

constexpr char kText[] =
    "The lighthouse at the end of the pier had been dark for eleven years when Mara "
    "bought it. The agent who sold it to her had called it a property with character, "
    "and the surveyor who looked at it a week later had called it a heap of wet stone. "
    "Both of them were right. The lamp room still had its lens, a cage of glass as tall "
    "as a man, and somebody had thrown a tarpaulin over it before the last keeper left, "
    "so that not one of its prisms was broken. Below it the stairs went round and round "
    "inside the wall, one hundred and forty steps, and on every landing there was a "
    "window that looked out on another part of the sea.\n\n"
    "She began with the roof. In the first winter she learned how to mix lime mortar, "
    "how to tell by the sound of the wind which shutter had come loose, and how long a "
    "letter takes to reach an island when the ferry does not run. The people of the "
    "village, who had watched others come and go, did not say much at first. But in "
    "January old Tomas walked out along the pier with a sack of coal on his shoulder, "
    "put it down at her door, and said that his father had tended the light for thirty "
    "years. \"He wrote down every ship,\" he said. \"There must be books.\"\n\n"
    "There were. She found them behind a panel in the watch room: forty-two volumes "
    "bound in oilcloth, with the date, the weather, the name and the course of every "
    "vessel that had passed. In the margins the keeper had noted other things. That the "
    "swallows had come back. That the price of oil had risen again. That a whale had "
    "stayed under the rocks for three days in the summer of 1936 and that nobody had "
    "had the heart to tell the newspaper. Mara read one volume each evening, and when "
    "she had read them all, she bought a new book, wrote the date on its first page, "
    "and went up the stairs to see what could be done about the lamp.";

std::string ModelPath() {
  if (const char* path = std::getenv("RENGA_TEST_MODEL"); path != nullptr) return path;
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : "") +
         "/.cache/renga/SmolLM2-135M-Instruct.Q4_1.gguf";
}

// The logits after each token of `tokens`, computed at once.
class Predictions {
 public:
  Predictions(const GgufFile& file, const std::vector<TokenId>& tokens, KvDtype dtype) {
    const int32_t rows = static_cast<int32_t>(tokens.size());
    const BackendLimits limits{.max_rows = rows,
                               .max_logit_rows = rows,
                               .max_sequences = 1,
                               .max_pages = PagesFor(rows)};
    backend_ = std::move(MakeCpuBackend({.precision = "high"})).value();
    const auto transformer =
        std::move(Transformer::Load(file, *backend_, limits)).value();
    const GraphShape& graph = transformer->config().graph;
    EXPECT_TRUE(backend_
                    ->CreateKvPool({.layers = graph.layers,
                                    .kv_heads = graph.kv_heads,
                                    .head_dim = graph.head_dim,
                                    .dtype = dtype},
                                   limits.max_pages)
                    .ok());
    std::vector<PageId> pages(static_cast<size_t>(limits.max_pages));
    std::iota(pages.begin(), pages.end(), 0);
    std::vector<int32_t> logit_rows(tokens.size());
    std::iota(logit_rows.begin(), logit_rows.end(), 0);
    const SequenceRows sequence{.rows = rows, .pages = pages, .open_page = 0};
    EXPECT_TRUE(
        transformer
            ->Forward(
                {.tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = logit_rows})
            .ok());
  }

  std::span<const float> After(size_t token) {
    return backend_->Logits(static_cast<int32_t>(token)).value();
  }

 private:
  std::unique_ptr<Backend> backend_;
};

std::vector<double> LogSoftmax(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - largest);
  std::vector<double> out;
  for (const float logit : logits) out.push_back(double{logit} - largest - std::log(sum));
  return out;
}

double Divergence(std::span<const float> from, std::span<const float> to) {
  const std::vector<double> p = LogSoftmax(from);
  const std::vector<double> q = LogSoftmax(to);
  double kl = 0.0;
  for (size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
  return kl;
}

TEST(Int8PagesGolden, PredictionsStayNearThoseWithF16Pages) {
  const auto file = GgufFile::Open(ModelPath());
  ASSERT_TRUE(file.ok()) << "the default model is missing: scripts/test.sh fetches it ("
                         << file.status().ToString() << ")";
  const auto tokenizer = LoadTokenizer(**file);
  ASSERT_TRUE(tokenizer.ok());
  const auto encoded = (*tokenizer)->Encode({.text = kText, .trusted = {}});
  ASSERT_TRUE(encoded.ok());
  const std::vector<TokenId>& tokens = *encoded;
  ASSERT_GT(tokens.size(), 300u);
  Predictions f16(**file, tokens, KvDtype::kF16);
  Predictions int8(**file, tokens, KvDtype::kInt8);
  double sum = 0.0;
  double worst = 0.0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double kl = Divergence(f16.After(i), int8.After(i));
    if (i < kPageTokens) {
      ASSERT_EQ(kl, 0.0) << "the first page is read as f16";
    }
    sum += kl;
    worst = std::max(worst, kl);
  }
  const double mean = sum / static_cast<double>(tokens.size() - kPageTokens);
  std::printf("int8 pages, %zu tokens: KL to f16 pages %.6f on average, %.4f at most\n",
              tokens.size(), mean, worst);
  EXPECT_GT(mean, 0.0);
  EXPECT_LT(mean, kMostMeanKl);
}

}  // namespace
}  // namespace renga
