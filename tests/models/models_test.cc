// The support code of other tests: the tiny models and the replay backend.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "formats/gguf_file.h"
#include "model/model_config.h"
#include "model/transformer.h"
#include "model/weights.h"
#include "tests/models/replay_backend.h"
#include "tests/models/tiny_model.h"
#include "tests/models/tiny_vocab.h"

namespace renga::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(TinyModelTest, EqualOptionsGiveEqualBytesAndSeedsDiffer) {
  EXPECT_EQ(MakeTinyModel({.seed = 3}), MakeTinyModel({.seed = 3}));
  EXPECT_NE(MakeTinyModel({.seed = 3}), MakeTinyModel({.seed = 4}));
}

TEST(TinyModelTest, EveryOptionReachesTheFile) {
  const TinyModelOptions options{.type = TinyType::kQ8_0,
                                 .tied = false,
                                 .layers = 3,
                                 .dim = 96,
                                 .heads = 6,
                                 .kv_heads = 3,
                                 .head_dim = 32,
                                 .ffn = 128,
                                 .vocab = 320,
                                 .context = 512};
  const std::vector<std::byte> bytes = MakeTinyModel(options);
  const auto file = GgufFile::FromBytes("tiny.gguf", bytes);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const auto config = ReadModelConfig(**file);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->graph.layers, 3);
  EXPECT_EQ(config->graph.head_dim, 32);
  EXPECT_EQ(config->graph.vocab, 320);
  EXPECT_EQ(config->context_length, 512);
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_TRUE(FindModelTensors(**file, *config).ok());
}

TEST(TinyVocabTest, PiecesAreDistinctAndMergesBuildThem) {
  const TinyVocab vocab = MakeTinyVocab(310);
  ASSERT_EQ(TinyVocabSize(), 300);
  ASSERT_EQ(vocab.tokens.size(), 310u);
  ASSERT_EQ(vocab.types.size(), 310u);
  const std::set<std::string> pieces(vocab.tokens.begin(), vocab.tokens.end());
  EXPECT_EQ(pieces.size(), vocab.tokens.size());
  EXPECT_EQ(vocab.tokens[kTinyFirstByte + 'A'], "A");
  EXPECT_EQ(vocab.tokens[kTinyFirstByte + ' '], "\u0120");
  EXPECT_EQ(vocab.tokens[kTinyFirstByte + '\n'], "\u010a");
  for (const std::string& merge : vocab.merges) {
    const size_t space = merge.find(' ');
    EXPECT_TRUE(pieces.contains(merge.substr(0, space))) << merge;
    EXPECT_TRUE(pieces.contains(merge.substr(space + 1))) << merge;
    EXPECT_TRUE(pieces.contains(merge.substr(0, space) + merge.substr(space + 1)));
  }
}

constexpr BackendLimits kLimits{
    .max_rows = 64, .max_logit_rows = 4, .max_sequences = 4, .max_pages = 8};

Transformer ReplayTransformer(ReplayBackend& backend) {
  ModelConfig config;
  config.graph = ReplayShape({});
  config.context_length = config.graph.context;
  EXPECT_TRUE(backend.CreateKvPool({}, kLimits.max_pages).ok());
  return Transformer(config, {.layers = std::vector<LayerWeights>(1)}, backend, kLimits);
}

Status RunStep(Transformer& transformer, std::vector<TokenId> tokens, int32_t first,
               std::vector<PageId> pages) {
  const auto rows = static_cast<int32_t>(tokens.size());
  const SequenceRows sequence{
      .first_row = 0, .rows = rows, .first_position = first, .pages = pages};
  const int32_t logit_row = rows - 1;
  return transformer.Forward(
      {.tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = {&logit_row, 1}});
}

SampleResult Draw(ReplayBackend& backend, uint32_t index) {
  const SampleSpec spec{.logit_row = 0, .token_index = index};
  SampleResult result;
  const Status status = backend.Sample({&spec, 1}, {&result, 1});
  EXPECT_TRUE(status.ok()) << status.ToString();
  return result;
}

TEST(ReplayBackendTest, TheScriptSeesThePromptThatThePagesHold) {
  std::vector<TokenId> seen;
  ReplayBackend backend([&](std::span<const TokenId> prompt, uint32_t index) {
    seen.assign(prompt.begin(), prompt.end());
    return static_cast<TokenId>(100 + index);
  });
  Transformer transformer = ReplayTransformer(backend);
  ASSERT_TRUE(RunStep(transformer, {5, 6, 7}, 0, {4}).ok());
  EXPECT_EQ(Draw(backend, 0).token, 100);
  ASSERT_TRUE(RunStep(transformer, {100}, 3, {4}).ok());
  EXPECT_EQ(Draw(backend, 1).token, 101);
  EXPECT_THAT(seen, ElementsAre(5, 6, 7));
  EXPECT_EQ((*backend.Logits(0))[101], 10.0f);
  EXPECT_EQ(backend.steps(), 2);
  EXPECT_EQ(backend.rows(), 4);
  EXPECT_THAT(backend.records()[1].tokens, ElementsAre(100));
}

TEST(ReplayBackendTest, APositionThatWasNeverComputedFailsTheSample) {
  ReplayBackend backend(ReplayBackend::Always({9}));
  Transformer transformer = ReplayTransformer(backend);
  ASSERT_TRUE(RunStep(transformer, {5}, 1, {0}).ok());
  const SampleSpec spec{};
  SampleResult result;
  EXPECT_THAT(backend.Sample({&spec, 1}, {&result, 1}).message(),
              HasSubstr("position 0 was never computed"));
}

TEST(ReplayBackendTest, BadBatchesFailTheStep) {
  ReplayBackend backend(ReplayBackend::Always({9}));
  Transformer transformer = ReplayTransformer(backend);
  EXPECT_FALSE(RunStep(transformer, {5}, 64, {0}).ok());    // No page for position 64.
  EXPECT_FALSE(RunStep(transformer, {5}, 0, {8}).ok());     // No such page.
  EXPECT_FALSE(RunStep(transformer, {300}, 0, {0}).ok());   // No such token.
  EXPECT_FALSE(RunStep(transformer, {5}, 1024, {0}).ok());  // Beyond the context.
}

TEST(ReplayBackendTest, AStepFailsOnRequest) {
  ReplayBackend backend(ReplayBackend::Always({9}));
  Transformer transformer = ReplayTransformer(backend);
  backend.FailStep(1, Unavailable("device lost"));
  EXPECT_TRUE(RunStep(transformer, {5}, 0, {0}).ok());
  EXPECT_EQ(RunStep(transformer, {5}, 1, {0}).message(), "device lost");
  EXPECT_TRUE(RunStep(transformer, {5}, 1, {0}).ok());
}

TEST(ReplayBackendTest, HeldStepsWaitUntilTheyAreReleased) {
  ReplayBackend backend(ReplayBackend::Always({9}));
  Transformer transformer = ReplayTransformer(backend);
  backend.HoldSteps();
  std::thread engine([&] {
    EXPECT_TRUE(RunStep(transformer, {5}, 0, {0}).ok());
    EXPECT_TRUE(RunStep(transformer, {6}, 1, {0}).ok());
  });
  backend.WaitUntilHeld();
  EXPECT_EQ(backend.rows(), 0);
  backend.ReleaseSteps(1);
  while (backend.rows() < 1) std::this_thread::yield();
  backend.WaitUntilHeld();
  EXPECT_EQ(backend.rows(), 1);
  backend.ReleaseAllSteps();
  engine.join();
  EXPECT_EQ(backend.rows(), 2);
}

}  // namespace
}  // namespace renga::test
