#include "app/loaded_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "backend/forwarding_backend.h"
#include "base/log.h"
#include "base/memory_ledger.h"
#include "tests/models/tiny_model.h"
#include "tests/models/tiny_vocab.h"

namespace renga {
namespace {

using testing::HasSubstr;

class LoadedModelTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(ConfigureLog("error", "text").ok());
    config_.model.path = testing::TempDir() + "renga_loaded_model_test_" +
                         testing::UnitTest::GetInstance()->current_test_info()->name() +
                         ".gguf";
    config_.device.threads = 1;
    config_.kv.pool_bytes = 1 << 20;
    Write({});
  }
  void TearDown() override { std::remove(config_.model.path.c_str()); }

  void Write(const test::TinyModelOptions& options) {
    ASSERT_TRUE(test::WriteTinyModel(options, config_.model.path));
  }
  Status OpenError() { return LoadedModel::Open(config_).status(); }

  Config config_;
};

TEST_F(LoadedModelTest, SaysWhatTheFileHolds) {
  auto opened = LoadedModel::Open(config_);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  LoadedModel& model = **opened;
  EXPECT_EQ(model.name(), "tiny");
  EXPECT_EQ(model.context(), 1024);
  EXPECT_EQ(model.pages(), (1 << 20) / 16'384);
  ASSERT_TRUE(model.MakeDevice(MakeDefaultBackend).ok());
  const ModelInfo info = model.Describe();
  EXPECT_EQ(info.name, "tiny");
  EXPECT_EQ(info.vocab_size, test::TinyVocabSize());
  EXPECT_TRUE(info.has_chat_template);
  EXPECT_THAT(info.backend, HasSubstr("cpu/"));
  EXPECT_FALSE(info.end_token_ids.empty());
}

TEST_F(LoadedModelTest, WeightsPoolAndActivationsAreBookedWhileItLives) {
  const MemoryLedger& ledger = MemoryLedger::Process();
  const int64_t weights = ledger.Read(MemoryPurpose::kWeights).bytes;
  const int64_t pool = ledger.Read(MemoryPurpose::kKvPool).bytes;
  const int64_t activations = ledger.Read(MemoryPurpose::kActivations).bytes;
  {
    auto opened = LoadedModel::Open(config_);
    ASSERT_TRUE(opened.ok());
    ASSERT_TRUE((*opened)->MakeDevice(MakeDefaultBackend).ok());
    const BackendLimits limits = {.max_rows = 64,
                                  .max_logit_rows = 8,
                                  .max_sequences = 8,
                                  .max_pages = (*opened)->pages()};
    ASSERT_TRUE((*opened)->LoadWeights(limits).ok());
    EXPECT_GT(ledger.Read(MemoryPurpose::kWeights).bytes, weights);
    EXPECT_EQ(ledger.Read(MemoryPurpose::kKvPool).bytes, pool + (1 << 20));
    EXPECT_GT(ledger.Read(MemoryPurpose::kActivations).bytes, activations);
  }
  EXPECT_EQ(ledger.Read(MemoryPurpose::kWeights).bytes, weights);
  EXPECT_EQ(ledger.Read(MemoryPurpose::kKvPool).bytes, pool);
  EXPECT_EQ(ledger.Read(MemoryPurpose::kActivations).bytes, activations);
}

TEST_F(LoadedModelTest, WhatIsWrongWithFileOrSettingsIsNamed) {
  config_.model.context = 1025;
  EXPECT_THAT(OpenError().ToString(),
              testing::AllOf(HasSubstr("model.context"), HasSubstr("1024")));
  config_.model.context = 1;
  EXPECT_EQ(OpenError().field(), "model.context");
  config_.model.context = 0;
  config_.kv.pool_bytes = 16'383;
  EXPECT_EQ(OpenError().field(), "kv.pool_bytes");
  config_.kv.pool_bytes = 16'384;
  EXPECT_TRUE(OpenError().ok());
  config_.kv.dtype = "f32";
  EXPECT_EQ(OpenError().field(), "kv.pool_bytes");
  config_.model.path += ".not";
  EXPECT_EQ(OpenError().field(), "model.path");
}

// A GPU whose memory is full once a few matrices are loaded.
class FullGpu : public ForwardingBackend {
 public:
  explicit FullGpu(std::unique_ptr<Backend> to)
      : ForwardingBackend(*to), to_(std::move(to)) {}
  BackendInfo info() const override {
    BackendInfo info;
    info.gpu_memory_bytes = 5000;
    return info;
  }
  StatusOr<MatrixId> LoadMatrix(std::span<const TensorView> stacked) override {
    if (++matrices_ == 3) return ResourceExhausted("16 bytes are missing");
    return ForwardingBackend::LoadMatrix(stacked);
  }

 private:
  const std::unique_ptr<Backend> to_;
  int matrices_ = 0;
};

TEST_F(LoadedModelTest, MemoryThatIsMissingIsToldBesideWhatIsNeededInAll) {
  auto opened = LoadedModel::Open(config_);
  ASSERT_TRUE(opened.ok());
  const auto make = [](const DeviceSettings& settings) {
    return StatusOr<std::unique_ptr<Backend>>(
        std::make_unique<FullGpu>(std::move(MakeDefaultBackend(settings)).value()));
  };
  ASSERT_TRUE((*opened)->MakeDevice(make).ok());
  const Status status = (*opened)->LoadWeights({.max_rows = 64,
                                                .max_logit_rows = 8,
                                                .max_sequences = 8,
                                                .max_pages = (*opened)->pages()});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(
      status.message(),
      testing::AllOf(HasSubstr("16 bytes are missing"), HasSubstr("all weights take"),
                     HasSubstr("(kv.pool_bytes) 1048576"), HasSubstr("GPU has 5000")));
}

TEST_F(LoadedModelTest, ThePoolPaysForOpenPagesToo) {
  constexpr int64_t kOpenPage = 16'384;                         // As one of f16.
  constexpr int64_t kPage = 2 * 2 * (128 * 16 + 4 * 16 + 128);  // Layers, heads.
  config_.kv.dtype = "int8";
  config_.scheduler.max_sequences = 3;
  config_.kv.pool_bytes = 3 * kOpenPage + 5 * kPage + kPage - 1;
  const MemoryLedger& ledger = MemoryLedger::Process();
  const int64_t before = ledger.Read(MemoryPurpose::kKvPool).bytes;
  auto opened = LoadedModel::Open(config_);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_EQ((*opened)->pages(), 5);
  ASSERT_TRUE((*opened)->MakeDevice(MakeDefaultBackend).ok());
  ASSERT_TRUE((*opened)
                  ->LoadWeights({.max_rows = 64,
                                 .max_logit_rows = 8,
                                 .max_sequences = 3,
                                 .max_pages = (*opened)->pages()})
                  .ok());
  EXPECT_EQ(ledger.Read(MemoryPurpose::kKvPool).bytes - before,
            3 * kOpenPage + 5 * kPage);
  EXPECT_THAT((*opened)->Describe().numerics_id, HasSubstr("/kv-int8.1"));
  config_.kv.pool_bytes = 3 * kOpenPage + kPage - 1;
  const Status refused = OpenError();
  EXPECT_EQ(refused.field(), "kv.pool_bytes");
  EXPECT_THAT(refused.message(), HasSubstr("open pages of 3 sequences"));
}

TEST_F(LoadedModelTest, Int8IsRefusedForHeadsThatItHasNoFormFor) {
  Write({.head_dim = 24});
  EXPECT_TRUE(OpenError().ok());
  config_.kv.dtype = "int8";
  EXPECT_EQ(OpenError().field(), "kv.dtype");
}

TEST_F(LoadedModelTest, AVocabularyOfAnotherSizeThanTheModelsIsRefused) {
  test::GgufWriter writer = test::TinyModelWriter({});
  const test::TinyVocab larger = test::MakeTinyVocab(test::TinyVocabSize() + 20);
  writer.Remove("tokenizer.ggml.tokens");
  writer.Remove("tokenizer.ggml.token_type");
  writer.AddStrings("tokenizer.ggml.tokens", larger.tokens);
  writer.AddInts("tokenizer.ggml.token_type", larger.types);
  const std::vector<std::byte> bytes = writer.Finish();
  std::ofstream(config_.model.path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const Status refused = OpenError();
  EXPECT_EQ(refused.field(), "tokenizer.ggml.tokens") << refused.ToString();
}

TEST_F(LoadedModelTest, AFactoryThatFailsFailsTheLoad) {
  auto opened = LoadedModel::Open(config_);
  ASSERT_TRUE(opened.ok());
  const Status made = (*opened)->MakeDevice(
      [](const DeviceSettings&) -> StatusOr<std::unique_ptr<Backend>> {
        return Unavailable("no such device");
      });
  EXPECT_EQ(made.code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace renga
