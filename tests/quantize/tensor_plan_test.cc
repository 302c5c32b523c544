// Which tensor gets which type.

#include "quantize/tensor_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/ggml_type.h"
#include "tests/models/tiny_model.h"

namespace renga {
namespace {

TensorPlan Plan(const std::string& name, std::vector<int64_t> dims, WantedTypes wanted,
                uint32_t type = kGgmlF16) {
  return PlanTensor({.name = name, .ggml_type = type, .dims = std::move(dims)}, wanted);
}

constexpr WantedTypes kFourBits = {.matrix = kGgmlQ4K, .embedding = kGgmlQ8_0};

TEST(TensorPlan, MatricesTablesAndVectorsEachGetTheirType) {
  EXPECT_EQ(Plan("blk.0.ffn_up.weight", {512, 64}, kFourBits).type, kGgmlQ4K);
  EXPECT_EQ(Plan("token_embd.weight", {512, 64}, kFourBits).type, kGgmlQ8_0);
  EXPECT_EQ(Plan("output.weight", {512, 64}, kFourBits).type, kGgmlQ8_0);
  EXPECT_EQ(Plan("output_norm.weight", {512}, kFourBits).type, kGgmlF32);
  EXPECT_EQ(Plan("blk.0.attn_q.bias", {512}, kFourBits).type, kGgmlF32);
  EXPECT_EQ(Plan("blk.0.ffn_gate_exps.weight", {512, 8, 4}, kFourBits).type, kGgmlQ4K);
  EXPECT_EQ(Plan("something", {512, 8}, kFourBits).type, kGgmlF16);
  EXPECT_EQ(Plan("positions", {512}, kFourBits, 26).type, 26u) << "integers stay";
}

TEST(TensorPlan, RowsThatDoNotDivideGetAWiderTypeAndAreMarked) {
  const TensorPlan by_32 = Plan("blk.0.attn_q.weight", {576, 64}, kFourBits);
  EXPECT_EQ(by_32.type, kGgmlQ8_0);
  EXPECT_TRUE(by_32.fallback);
  const TensorPlan ragged = Plan("blk.0.attn_q.weight", {100, 64}, kFourBits);
  EXPECT_EQ(ragged.type, kGgmlF16);
  EXPECT_TRUE(ragged.fallback);
  EXPECT_FALSE(Plan("blk.0.attn_q.weight", {768, 64}, kFourBits).fallback);
}

TEST(TensorPlan, TablesOfFourBitModelsKeepEightBits) {
  EXPECT_EQ(DefaultEmbeddingType(kGgmlQ4_0), kGgmlQ8_0);
  EXPECT_EQ(DefaultEmbeddingType(kGgmlQ4_1), kGgmlQ8_0);
  EXPECT_EQ(DefaultEmbeddingType(kGgmlQ4K), kGgmlQ8_0);
  EXPECT_EQ(DefaultEmbeddingType(kGgmlF32), kGgmlF32);
}

TEST(TensorPlan, TensorsThatCannotBeReadAreNamed) {
  test::GgufWriter writer = test::TinyModelWriter({});
  writer.RemoveTensor("blk.1.ffn_down.weight");
  writer.AddTensor("blk.1.ffn_down.weight", 14, {256, 4}, std::vector<std::byte>(840));
  const std::vector<std::byte> bytes = writer.Finish();
  const auto file = GgufFile::FromBytes("tiny.gguf", bytes);
  const Status status = PlanTensors(**file, kFourBits).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(status.field(), "blk.1.ffn_down.weight");
  EXPECT_THAT(status.message(), testing::HasSubstr("Q6_K"));
}

TEST(TensorPlan, NamesThatAreNoTextAreRefused) {
  test::GgufWriter writer = test::TinyModelWriter({});
  writer.AddTensor("bad\nname.weight", 0, {32}, std::vector<std::byte>(128));
  const std::vector<std::byte> bytes = writer.Finish();
  const auto file = GgufFile::FromBytes("tiny.gguf", bytes);
  EXPECT_EQ(PlanTensors(**file, kFourBits).status().field(), "bad?name.weight");
}

TEST(TensorPlan, EachTypeHasItsFileType) {
  EXPECT_EQ(FileTypeOf(kGgmlF32), 0u);
  EXPECT_EQ(FileTypeOf(kGgmlF16), 1u);
  EXPECT_EQ(FileTypeOf(kGgmlQ4_0), 2u);
  EXPECT_EQ(FileTypeOf(kGgmlQ4_1), 3u);
  EXPECT_EQ(FileTypeOf(kGgmlQ8_0), 7u);
  EXPECT_EQ(FileTypeOf(kGgmlQ4K), 14u);
}

}  // namespace
}  // namespace renga
