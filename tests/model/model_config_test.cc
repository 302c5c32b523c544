// The configuration of a good tiny file with one key changed, removed or added at a time.

#include "model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "formats/gguf_file.h"
#include "tests/models/gguf_writer.h"
#include "tests/models/tiny_model.h"

namespace renga {
namespace {

using test::GgufWriter;
using testing::HasSubstr;

using Change = std::function<void(GgufWriter&)>;

StatusOr<ModelConfig> ReadWith(const Change& change) {
  GgufWriter writer = test::TinyModelWriter({});
  change(writer);
  const std::vector<std::byte> bytes = writer.Finish();
  auto file = GgufFile::FromBytes("tiny.gguf", bytes);
  if (!file.ok()) return file.status();
  return ReadModelConfig(**file);
}

Change SetUint(const std::string& key, uint32_t value) {
  return [=](GgufWriter& writer) {
    writer.Remove(key);
    writer.AddUint32(key, value);
  };
}

Change SetFloat(const std::string& key, float value) {
  return [=](GgufWriter& writer) {
    writer.Remove(key);
    writer.AddFloat32(key, value);
  };
}

Change SetString(const std::string& key, const std::string& value) {
  return [=](GgufWriter& writer) {
    writer.Remove(key);
    writer.AddString(key, value);
  };
}

Change Without(const std::string& key) {
  return [=](GgufWriter& writer) { writer.Remove(key); };
}

TEST(ModelConfigTest, AGoodFileGivesItsShape) {
  const auto config = ReadWith([](GgufWriter&) {});
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->name, "tiny");
  EXPECT_EQ(config->context_length, 1024);
  EXPECT_TRUE(config->tied_embeddings);
  const GraphShape& graph = config->graph;
  EXPECT_EQ(graph.layers, 2);
  EXPECT_EQ(graph.dim, 64);
  EXPECT_EQ(graph.heads, 4);
  EXPECT_EQ(graph.kv_heads, 2);
  EXPECT_EQ(graph.head_dim, 16);
  EXPECT_EQ(graph.ffn, 96);
  EXPECT_EQ(graph.vocab, 300);
  EXPECT_EQ(graph.rope_dims, 16);
  EXPECT_EQ(graph.rope_style, RopeStyle::kAdjacentPairs);
  EXPECT_EQ(graph.norm_eps, 1e-5f);
  ASSERT_EQ(graph.rope_inverse_frequencies.size(), 8u);
  EXPECT_EQ(graph.rope_inverse_frequencies[0], 1.0);
  EXPECT_NEAR(graph.rope_inverse_frequencies[4], 0.01, 1e-15);
}

TEST(ModelConfigTest, MissingOptionalKeysTakeTheirDefaults) {
  const auto config = ReadWith([](GgufWriter& writer) {
    for (const char* key :
         {"general.name", "llama.attention.key_length", "llama.attention.value_length",
          "llama.rope.dimension_count", "llama.rope.freq_base", "llama.vocab_size",
          "llama.attention.head_count_kv"}) {
      writer.Remove(key);
    }
  });
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->name, "llama");
  EXPECT_EQ(config->graph.head_dim, 16);
  EXPECT_EQ(config->graph.rope_dims, 16);
  EXPECT_EQ(config->graph.vocab, 300);
  EXPECT_EQ(config->graph.kv_heads, 4);
  EXPECT_NEAR(config->graph.rope_inverse_frequencies[4], 0.01, 1e-15);
}

TEST(ModelConfigTest, RequiredKeysAreMissedByName) {
  for (const char* key :
       {"general.architecture", "llama.block_count", "llama.context_length",
        "llama.embedding_length", "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    const Status status = ReadWith(Without(key)).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << key;
    EXPECT_EQ(status.field(), key);
  }
}

struct BadKey {
  std::string field;  // That the error must name.
  Change change;
};

void PrintTo(const BadKey& bad, std::ostream* out) { *out << bad.field; }

class ModelConfigBadKeyTest : public testing::TestWithParam<BadKey> {};

TEST_P(ModelConfigBadKeyTest, IsRefusedWithItsName) {
  const Status status = ReadWith(GetParam().change).status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.field(), GetParam().field) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("tiny.gguf: "));
}

BadKey Uint(const std::string& key, uint32_t value) { return {key, SetUint(key, value)}; }
BadKey Float(const std::string& key, float value) { return {key, SetFloat(key, value)}; }
BadKey Text(const std::string& key, const std::string& value) {
  return {key, SetString(key, value)};
}

constexpr float kInf = std::numeric_limits<float>::infinity();

INSTANTIATE_TEST_SUITE_P(
    Ranges, ModelConfigBadKeyTest,
    testing::Values(
        Uint("llama.block_count", 0), Uint("llama.block_count", 5000),
        Uint("llama.block_count", ~0u), Uint("llama.context_length", 0),
        Uint("llama.context_length", ~0u), Uint("llama.embedding_length", 0),
        Uint("llama.embedding_length", ~0u), Uint("llama.feed_forward_length", 0),
        Uint("llama.feed_forward_length", 1u << 31),
        Uint("llama.attention.head_count", 0), Uint("llama.attention.head_count", ~0u),
        Uint("llama.attention.head_count_kv", 0),
        Uint("llama.attention.head_count_kv", 3),
        Uint("llama.attention.head_count_kv", 8), Uint("llama.attention.key_length", 0),
        Uint("llama.attention.key_length", 15), Uint("llama.attention.key_length", ~0u),
        Uint("llama.attention.value_length", 8), Uint("llama.rope.dimension_count", 0),
        Uint("llama.rope.dimension_count", 7), Uint("llama.rope.dimension_count", 18),
        Uint("llama.vocab_size", 299), Uint("llama.vocab_size", ~0u)));

INSTANTIATE_TEST_SUITE_P(
    Numbers, ModelConfigBadKeyTest,
    testing::Values(Float("llama.rope.freq_base", 0.0f),
                    Float("llama.rope.freq_base", -1.0f),
                    Float("llama.rope.freq_base", NAN),
                    Float("llama.rope.freq_base", kInf),
                    Float("llama.attention.layer_norm_rms_epsilon", 0.0f),
                    Float("llama.attention.layer_norm_rms_epsilon", NAN),
                    Float("llama.attention.layer_norm_rms_epsilon", kInf)));

INSTANTIATE_TEST_SUITE_P(Types, ModelConfigBadKeyTest,
                         testing::Values(Float("llama.block_count", 2.0f),
                                         Text("llama.block_count", "2"),
                                         Uint("llama.rope.freq_base", 10000),
                                         Uint("llama.rope.scaling.type", 1),
                                         Uint("general.name", 1),
                                         Uint("general.architecture", 1)));

INSTANTIATE_TEST_SUITE_P(Unsupported, ModelConfigBadKeyTest,
                         testing::Values(Text("general.architecture", "gemma3"),
                                         Text("general.architecture", ""),
                                         Text("llama.rope.scaling.type", "yarn"),
                                         Text("llama.rope.scaling.type", "foo"),
                                         Uint("llama.expert_count", 8),
                                         Uint("llama.attention.sliding_window", 4),
                                         Uint("split.count", 2)));

TEST(ModelConfigTest, HeadsThatDoNotDivideTheWidthNeedAKeyLength) {
  const Status status = ReadWith([](GgufWriter& writer) {
                          SetUint("llama.attention.head_count", 6)(writer);
                          writer.Remove("llama.attention.key_length");
                        }).status();
  EXPECT_EQ(status.field(), "llama.attention.head_count");
}

TEST(ModelConfigTest, MoreTokensThanRowsOfTheEmbeddingAreRefused) {
  const Status status =
      ReadWith([](GgufWriter& writer) {
        writer.Remove("tokenizer.ggml.tokens");
        writer.AddStrings("tokenizer.ggml.tokens", std::vector<std::string>(301, "x"));
      }).status();
  EXPECT_EQ(status.field(), "tokenizer.ggml.tokens");
}

TEST(ModelConfigTest, FeaturesThatAreOffAreAccepted) {
  EXPECT_TRUE(ReadWith(SetUint("llama.expert_count", 0)).ok());
  EXPECT_TRUE(ReadWith(SetUint("split.count", 1)).ok());
  EXPECT_TRUE(ReadWith(SetString("llama.rope.scaling.type", "none")).ok());
}

TEST(ModelConfigTest, AScalingFactorWithoutATypeIsRefusedNotIgnored) {
  const Status status = ReadWith([](GgufWriter& writer) {
                          writer.AddFloat32("llama.rope.scaling.factor", 8.0f);
                        }).status();
  EXPECT_EQ(status.field(), "llama.rope.scaling.factor");
}

TEST(ModelConfigTest, LinearRopeScalingDividesTheFrequencies) {
  const auto config = ReadWith([](GgufWriter& writer) {
    writer.AddString("llama.rope.scaling.type", "linear");
    writer.AddFloat32("llama.rope.scaling.factor", 4.0f);
  });
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->graph.rope_inverse_frequencies[0], 0.25);
  const Status missing =
      ReadWith(SetString("llama.rope.scaling.type", "linear")).status();
  EXPECT_EQ(missing.field(), "llama.rope.scaling.factor");
}

TEST(ModelConfigTest, AnOutputMatrixMeansUntied) {
  GgufWriter writer = test::TinyModelWriter({.tied = false});
  const std::vector<std::byte> bytes = writer.Finish();
  const auto file = GgufFile::FromBytes("tiny.gguf", bytes);
  EXPECT_FALSE(ReadModelConfig(**file)->tied_embeddings);
}

}  // namespace
}  // namespace renga
