// The whole graph on the real CPU backend against the double-precision reference, and the
// order of the steps on a fake one.

#include "model/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu_backend.h"
#include "formats/gguf_file.h"
#include "tests/model/reference_model.h"
#include "tests/models/allocation_meter.h"
#include "tests/models/tiny_model.h"

namespace renga {
namespace {

using test::TinyModelOptions;
using test::TinyType;
using testing::_;
using testing::InSequence;
using testing::NiceMock;
using testing::Return;

constexpr BackendLimits kLimits{
    .max_rows = 128, .max_logit_rows = 128, .max_sequences = 4, .max_pages = 32};

// A tiny model loaded on the CPU, with one sequence's pages.
struct Loaded {
  std::vector<std::byte> bytes;
  std::unique_ptr<GgufFile> file;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Transformer> transformer;
  std::vector<PageId> pages;
};

Loaded Load(const TinyModelOptions& options, KvDtype dtype, const std::string& isa) {
  Loaded loaded;
  loaded.bytes = test::MakeTinyModel(options);
  loaded.file = std::move(*GgufFile::FromBytes("tiny.gguf", loaded.bytes));
  auto backend = MakeCpuBackend({.isa = isa, .threads = 1});
  EXPECT_TRUE(backend.ok()) << backend.status().ToString();
  loaded.backend = std::move(*backend);
  auto transformer = Transformer::Load(*loaded.file, *loaded.backend, kLimits);
  EXPECT_TRUE(transformer.ok()) << transformer.status().ToString();
  loaded.transformer = std::move(*transformer);
  const GraphShape& graph = loaded.transformer->config().graph;
  const Status pool = loaded.backend->CreateKvPool({.layers = graph.layers,
                                                    .kv_heads = graph.kv_heads,
                                                    .head_dim = graph.head_dim,
                                                    .dtype = dtype},
                                                   kLimits.max_pages);
  EXPECT_TRUE(pool.ok()) << pool.ToString();
  // Not in order: a page's place in the pool means nothing.
  for (PageId page = 0; page < 8; ++page) loaded.pages.push_back((page * 5 + 3) % 32);
  return loaded;
}

std::vector<TokenId> RandomTokens(size_t count, int32_t vocab) {
  std::mt19937 random(7);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random() % static_cast<uint32_t>(vocab));
  }
  return tokens;
}

// Computes tokens [first, first + rows) and appends the logits of each of them.
void Step(Loaded& loaded, const std::vector<TokenId>& tokens, int32_t first, int32_t rows,
          std::vector<std::vector<float>>& logits) {
  std::vector<int32_t> logit_rows;
  for (int32_t row = 0; row < rows; ++row) logit_rows.push_back(row);
  const SequenceRows sequence{
      .first_row = 0, .rows = rows, .first_position = first, .pages = loaded.pages};
  const Status status =
      loaded.transformer->Forward({.tokens = std::span(tokens).subspan(first, rows),
                                   .sequences = {&sequence, 1},
                                   .logit_rows = logit_rows});
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (int32_t row = 0; row < rows; ++row) {
    const auto values = loaded.backend->Logits(row);
    ASSERT_TRUE(values.ok()) << values.status().ToString();
    logits.emplace_back(values->begin(), values->end());
  }
}

double Deviation(const std::vector<reference::Vector>& rows) {
  double squares = 0.0, count = 0.0;
  for (const auto& row : rows) {
    for (const double value : row) squares += value * value;
    count += static_cast<double>(row.size());
  }
  return std::sqrt(squares / count);
}

double RmsError(const std::vector<std::vector<float>>& logits,
                const std::vector<reference::Vector>& expected) {
  double squares = 0.0, count = 0.0;
  for (size_t row = 0; row < expected.size(); ++row) {
    for (size_t i = 0; i < expected[row].size(); ++i) {
      const double error = logits.at(row).at(i) - expected[row][i];
      squares += error * error;
      count += 1.0;
    }
  }
  return std::sqrt(squares / count);
}

// Tolerances are for the root mean square error over all logits, whose own deviation is
// about 3, and about ten times what was measured.
struct Case {
  TinyType type = TinyType::kF32;
  bool tied = true;
  KvDtype dtype = KvDtype::kF32;
  double tolerance = 0.0;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << test::TinyTypeName(c.type) << (c.tied ? " tied " : " untied ")
       << KvDtypeName(c.dtype);
}

class TransformerReferenceTest : public testing::TestWithParam<Case> {};

// 100 positions: two pages, in slices that do not fall on their border.
TEST_P(TransformerReferenceTest, LogitsFollowTheDefinition) {
  const Case& c = GetParam();
  const TinyModelOptions options{.seed = 11, .type = c.type, .tied = c.tied, .layers = 4};
  Loaded loaded = Load(options, c.dtype, "portable");
  const std::vector<TokenId> tokens = RandomTokens(100, 300);
  std::vector<std::vector<float>> logits;
  Step(loaded, tokens, 0, 70, logits);
  Step(loaded, tokens, 70, 29, logits);
  Step(loaded, tokens, 99, 1, logits);
  const auto model =
      test::ReferenceModel(*loaded.file, loaded.transformer->config(), 1e4);
  const auto exact = reference::LlamaLogits(model, tokens);
  const double error = RmsError(logits, exact);
  RecordProperty("rms_error", std::to_string(error));
  EXPECT_LE(error, c.tolerance);
  EXPECT_GT(Deviation(exact), 1.5);  // Else the comparison would say little.
}

INSTANTIATE_TEST_SUITE_P(
    Types, TransformerReferenceTest,
    testing::Values(
        Case{.type = TinyType::kF32, .tolerance = 4e-5},
        Case{.type = TinyType::kF32, .tied = false, .tolerance = 4e-5},
        Case{.type = TinyType::kF32, .dtype = KvDtype::kF16, .tolerance = 0.03},
        Case{.type = TinyType::kF16, .tolerance = 4e-5},
        Case{.type = TinyType::kQ8_0, .tolerance = 4e-3},
        Case{.type = TinyType::kQ4_1, .tolerance = 4e-3},
        Case{.type = TinyType::kQ4_1, .tied = false, .tolerance = 4e-3},
        Case{.type = TinyType::kMixed, .tolerance = 4e-3}));

TEST(TinyModelTest, ScoresAndLogitsAreNotFlat) {
  for (const bool tied : {true, false}) {
    const std::vector<std::byte> bytes = test::MakeTinyModel({.tied = tied});
    const auto file = GgufFile::FromBytes("tiny.gguf", bytes);
    const auto model = test::ReferenceModel(**file, *ReadModelConfig(**file), 1e4);
    const std::vector<TokenId> tokens = RandomTokens(30, 300);
    EXPECT_NEAR(reference::ScoreDeviation(model, tokens), 2.0, 0.8);
    EXPECT_NEAR(Deviation(reference::LlamaLogits(model, tokens)), 3.0, 1.2);
  }
}

// An output matrix that is a copy of the embedding gives the tied model's bits.
TEST(TransformerTest, TiedAndAnEqualCopyGiveTheSameBits) {
  const std::vector<TokenId> tokens = RandomTokens(20, 300);
  std::vector<std::vector<float>> tied_logits, copy_logits;
  Loaded tied = Load({.type = TinyType::kQ4_1}, KvDtype::kF16, "auto");
  Step(tied, tokens, 0, 20, tied_logits);
  // The copy takes no random numbers, so all other weights are equal.
  Loaded copy = Load({.type = TinyType::kQ4_1, .tied = false, .head_is_embedding = true},
                     KvDtype::kF16, "auto");
  Step(copy, tokens, 0, 20, copy_logits);
  EXPECT_FALSE(copy.transformer->config().tied_embeddings);
  EXPECT_EQ(tied_logits, copy_logits);
}

TEST(TransformerTest, SlicesAndInstructionSetsGiveTheSameBits) {
  const std::vector<TokenId> tokens = RandomTokens(90, 300);
  const TinyModelOptions options{.type = TinyType::kMixed, .layers = 4};
  std::vector<std::vector<float>> whole, sliced;
  Loaded portable = Load(options, KvDtype::kF16, "portable");
  Step(portable, tokens, 0, 90, whole);
  Loaded best = Load(options, KvDtype::kF16, "auto");
  for (int32_t first = 0; first < 90; first += 9) Step(best, tokens, first, 9, sliced);
  EXPECT_EQ(whole, sliced);
}

TEST(TransformerTest, SteadyStepsAllocateNothing) {
  Loaded loaded = Load({.type = TinyType::kMixed}, KvDtype::kF16, "auto");
  const std::vector<TokenId> tokens = RandomTokens(300, 300);
  const std::vector<int32_t> last = {0};
  int64_t before = 0;
  for (int32_t position = 0; position < 300; ++position) {
    if (position == 5) before = test::AllocationCount();
    const SequenceRows sequence{
        .first_row = 0, .rows = 1, .first_position = position, .pages = loaded.pages};
    const Status status =
        loaded.transformer->Forward({.tokens = std::span(tokens).subspan(position, 1),
                                     .sequences = {&sequence, 1},
                                     .logit_rows = last});
    ASSERT_TRUE(status.ok());
  }
  EXPECT_EQ(test::AllocationCount(), before);
}

class MockBackend : public Backend {
 public:
  MOCK_METHOD(BackendInfo, info, (), (const, override));
  MOCK_METHOD(Status, Configure, (const GraphShape&, const BackendLimits&), (override));
  MOCK_METHOD(StatusOr<MatrixId>, LoadMatrix, (std::span<const TensorView>), (override));
  MOCK_METHOD(StatusOr<VectorId>, LoadVector, (std::span<const float>), (override));
  MOCK_METHOD(Status, CreateKvPool, (const KvGeometry&, int64_t), (override));
  MOCK_METHOD(int64_t, page_bytes, (), (const, override));
  MOCK_METHOD(PageLayout, page_layout, (), (const, override));
  MOCK_METHOD(Status, ReadPage, (PageId, std::span<std::byte>), (override));
  MOCK_METHOD(Status, WritePage, (PageId, std::span<const std::byte>), (override));
  MOCK_METHOD(Status, CopyPageHead, (PageId, PageId, int32_t), (override));
  MOCK_METHOD(Status, BeginStep, (const StepBatch&, const AttendPlan&), (override));
  MOCK_METHOD(Status, Embed, (MatrixId), (override));
  MOCK_METHOD(Status, NormQkvRopeAppend, (int32_t, const LayerWeights&), (override));
  MOCK_METHOD(Status, Attend, (int32_t), (override));
  MOCK_METHOD(Status, OutProjAdd, (const LayerWeights&), (override));
  MOCK_METHOD(Status, Mlp, (const LayerWeights&), (override));
  MOCK_METHOD(Status, Head, (VectorId, MatrixId), (override));
  MOCK_METHOD(Status, Sample, (std::span<const SampleSpec>, std::span<SampleResult>),
              (override));
  MOCK_METHOD(StatusOr<std::span<const float>>, Logits, (int32_t), (override));
};

ModelConfig TwoLayers() {
  ModelConfig config;
  config.graph.layers = 2;
  config.graph.kv_heads = 1;
  return config;
}

ModelWeights TwoLayerWeights() {
  return {.embedding = MatrixId{1},
          .head = MatrixId{2},
          .output_norm = VectorId{3},
          .layers = std::vector<LayerWeights>(2)};
}

TEST(TransformerTest, TheStepsOfALayerComeInOrder) {
  testing::StrictMock<MockBackend> backend;
  Transformer transformer(TwoLayers(), TwoLayerWeights(), backend, kLimits);
  {
    const InSequence in_order;
    EXPECT_CALL(backend, BeginStep(_, _)).WillOnce(Return(OkStatus()));
    EXPECT_CALL(backend, Embed(MatrixId{1})).WillOnce(Return(OkStatus()));
    for (int32_t layer = 0; layer < 2; ++layer) {
      EXPECT_CALL(backend, NormQkvRopeAppend(layer, _)).WillOnce(Return(OkStatus()));
      EXPECT_CALL(backend, Attend(layer)).WillOnce(Return(OkStatus()));
      EXPECT_CALL(backend, OutProjAdd(_)).WillOnce(Return(OkStatus()));
      EXPECT_CALL(backend, Mlp(_)).WillOnce(Return(OkStatus()));
    }
    EXPECT_CALL(backend, Head(VectorId{3}, MatrixId{2})).WillOnce(Return(OkStatus()));
  }
  const TokenId token = 0;
  const int32_t logit_row = 0;
  const SequenceRows sequence{.rows = 1, .pages = {}};
  EXPECT_TRUE(transformer
                  .Forward({.tokens = {&token, 1},
                            .sequences = {&sequence, 1},
                            .logit_rows = {&logit_row, 1}})
                  .ok());
}

TEST(TransformerTest, WithoutLogitRowsThereIsNoHead) {
  NiceMock<MockBackend> backend;
  Transformer transformer(TwoLayers(), TwoLayerWeights(), backend, kLimits);
  EXPECT_CALL(backend, Head(_, _)).Times(0);
  EXPECT_TRUE(
      transformer.Forward({.tokens = {}, .sequences = {}, .logit_rows = {}}).ok());
}

TEST(TransformerTest, TheFirstFailureEndsTheStep) {
  NiceMock<MockBackend> backend;
  Transformer transformer(TwoLayers(), TwoLayerWeights(), backend, kLimits);
  EXPECT_CALL(backend, Attend(0)).WillOnce(Return(Unavailable("device lost")));
  EXPECT_CALL(backend, Mlp(_)).Times(0);
  const Status status =
      transformer.Forward({.tokens = {}, .sequences = {}, .logit_rows = {}});
  EXPECT_EQ(status.message(), "device lost");
}

// A wrong tensor is found before the backend hears of the model.
TEST(TransformerTest, ABadFileTouchesNoBackend) {
  testing::StrictMock<MockBackend> backend;
  test::GgufWriter writer = test::TinyModelWriter({});
  writer.RemoveTensor("blk.1.ffn_down.weight");
  const std::vector<std::byte> bytes = writer.Finish();
  const auto file = GgufFile::FromBytes("tiny.gguf", bytes);
  const auto loaded = Transformer::Load(**file, backend, kLimits);
  EXPECT_EQ(loaded.status().field(), "blk.1.ffn_down.weight");
}

}  // namespace
}  // namespace renga
