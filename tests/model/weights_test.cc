#include "model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "formats/gguf_file.h"
#include "model/model_config.h"
#include "tests/models/gguf_writer.h"
#include "tests/models/tiny_model.h"

namespace renga {
namespace {

using test::GgufWriter;
using test::TinyType;
using testing::HasSubstr;

// What FindModelTensors says of a tiny file after a change, with the file's own config.
Status FindWith(const std::function<void(GgufWriter&)>& change) {
  GgufWriter writer = test::TinyModelWriter({});
  change(writer);
  const std::vector<std::byte> bytes = writer.Finish();
  const auto file = GgufFile::FromBytes("tiny.gguf", bytes);
  if (!file.ok()) return file.status();
  const auto config = ReadModelConfig(**file);
  if (!config.ok()) return config.status();
  return FindModelTensors(**file, *config).status();
}

std::vector<std::byte> Zeros(size_t bytes) { return std::vector<std::byte>(bytes); }

TEST(WeightsTest, EveryTypeIsFoundWithItsShape) {
  for (const TinyType type : {TinyType::kF32, TinyType::kF16, TinyType::kQ4_1,
                              TinyType::kQ8_0, TinyType::kMixed}) {
    const std::vector<std::byte> bytes =
        test::MakeTinyModel({.type = type, .tied = false, .layers = 4});
    const auto file = GgufFile::FromBytes("tiny.gguf", bytes);
    const auto config = ReadModelConfig(**file);
    const auto tensors = FindModelTensors(**file, *config);
    ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
    ASSERT_EQ(tensors->layers.size(), 4u);
    const LayerTensors& layer = tensors->layers[3];
    EXPECT_EQ(layer.qkv[0].rows, 64);
    EXPECT_EQ(layer.qkv[1].rows, 32);
    EXPECT_EQ(layer.gate_up[1].rows, 96);
    EXPECT_EQ(layer.down[0].cols, 96);
    EXPECT_EQ(tensors->head.rows, 300);
    EXPECT_NE(tensors->head.data, tensors->embedding.data);
    // Norms, F16 ones included, are around 1.
    for (const float value : layer.mlp_norm) EXPECT_NEAR(value, 1.0f, 0.2f);
  }
}

TEST(WeightsTest, EveryTensorIsMissedByName) {
  for (const char* name :
       {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight",
        "blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.1.attn_v.weight",
        "blk.1.attn_output.weight", "blk.1.ffn_norm.weight", "blk.1.ffn_gate.weight",
        "blk.1.ffn_up.weight", "blk.1.ffn_down.weight"}) {
    const Status status =
        FindWith([&](GgufWriter& writer) { writer.RemoveTensor(name); });
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(status.field(), name);
  }
}

TEST(WeightsTest, MoreLayersThanTensorsAreRefused) {
  const Status status = FindWith([](GgufWriter& writer) {
    writer.Remove("llama.block_count");
    writer.AddUint32("llama.block_count", 513);
  });
  EXPECT_EQ(status.field(), "blk.2.attn_norm.weight");
}

TEST(WeightsTest, FewerLayersThanTensorsAreRefused) {
  const Status status = FindWith([](GgufWriter& writer) {
    writer.Remove("llama.block_count");
    writer.AddUint32("llama.block_count", 1);
  });
  EXPECT_THAT(status.field(), HasSubstr("blk.1."));
}

TEST(WeightsTest, SwappedDimensionsAreRefusedWithBothShapes) {
  const Status status = FindWith([](GgufWriter& writer) {
    writer.RemoveTensor("blk.0.ffn_up.weight");
    writer.AddTensor("blk.0.ffn_up.weight", 0, {96, 64}, Zeros(96 * 64 * 4));
  });
  EXPECT_EQ(status.field(), "blk.0.ffn_up.weight");
  EXPECT_THAT(status.message(), HasSubstr("must be 64 x 96, is 96 x 64"));
}

TEST(WeightsTest, Bf16MatricesAreTaken) {
  const Status status = FindWith([](GgufWriter& writer) {
    writer.RemoveTensor("blk.0.attn_v.weight");
    writer.AddTensor("blk.0.attn_v.weight", 30, {64, 32}, Zeros(64 * 32 * 2));
  });
  EXPECT_EQ(status.ToString(), "OK");
}

TEST(WeightsTest, UnsupportedTypesAreNamed) {
  const Status matrix = FindWith([](GgufWriter& writer) {
    writer.RemoveTensor("blk.0.attn_v.weight");
    writer.AddTensor("blk.0.attn_v.weight", 6, {64, 32}, Zeros(32 * 2 * 22));
  });
  EXPECT_EQ(matrix.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(matrix.field(), "blk.0.attn_v.weight");
  EXPECT_THAT(matrix.message(), HasSubstr("Q5_0"));
  const Status norm = FindWith([](GgufWriter& writer) {
    writer.RemoveTensor("output_norm.weight");
    writer.AddTensor("output_norm.weight", 8, {64}, Zeros(68));
  });
  EXPECT_EQ(norm.field(), "output_norm.weight");
  EXPECT_THAT(norm.message(), HasSubstr("Q8_0"));
}

TEST(WeightsTest, ATensorThatTheGraphWouldIgnoreIsRefused) {
  const Status status = FindWith([](GgufWriter& writer) {
    writer.AddTensor("blk.0.attn_q.bias", 0, {64}, Zeros(64 * 4));
  });
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(status.field(), "blk.0.attn_q.bias");
}

TEST(WeightsTest, HalfNormsBecomeExactFloats) {
  const uint16_t halves[] = {0x3c00, 0xbc00, 0x0001, 0x8400,
                             0x7bff, 0x3555, 0x0000, 0x03ff};
  const float floats[] = {1.0f,     -1.0f,       0x1p-24f, -0x1p-14f,
                          65504.0f, 0x1.554p-2f, 0.0f,     0x1.ff8p-15f};
  GgufWriter writer = test::TinyModelWriter({});
  writer.RemoveTensor("output_norm.weight");
  std::vector<std::byte> data(64 * 2);
  std::memcpy(data.data(), halves, sizeof halves);
  writer.AddTensor("output_norm.weight", 1, {64}, data);
  const std::vector<std::byte> bytes = writer.Finish();
  const auto file = GgufFile::FromBytes("tiny.gguf", bytes);
  const auto tensors = FindModelTensors(**file, *ReadModelConfig(**file));
  ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(tensors->output_norm[i], floats[i]) << i;
}

}  // namespace
}  // namespace renga
