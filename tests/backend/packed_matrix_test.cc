// Shapes of matrices that cannot be packed.

#include <gtest/gtest.h>

#include "tests/backend/tiny_model.h"

namespace renga {
namespace {

TEST(LoadMatrix, RefusesShapesThatDoNotFitTheType) {
  auto backend = std::move(MakeCpuBackend({.threads = 1})).value();
  std::vector<std::byte> data(4096);
  const auto load = [&](const std::vector<TensorView>& views) {
    return backend->LoadMatrix(views).status();
  };
  const TensorView good{TensorType::kQ8_0, 2, 64, data.data()};
  EXPECT_TRUE(load({good}).ok());
  EXPECT_FALSE(load({}).ok());
  const Status ragged = load({{TensorType::kQ4_1, 2, 48, data.data()}});
  EXPECT_EQ(ragged.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(ragged.message().find("Q4_1 2 x 48"), std::string::npos) << ragged.message();
  EXPECT_FALSE(load({{TensorType::kF32, 0, 4, data.data()}}).ok());
  EXPECT_FALSE(load({{TensorType::kF32, 2, -4, data.data()}}).ok());
  EXPECT_FALSE(load({{TensorType::kF32, int64_t{1} << 40, 4, data.data()}}).ok());
  EXPECT_FALSE(load({{TensorType::kF32, 2, 4, nullptr}}).ok());
  EXPECT_FALSE(load({good, {TensorType::kF32, 2, 32, data.data()}}).ok());
}

TEST(LoadMatrix, RefusesByTheTensorsName) {
  auto backend = std::move(MakeCpuBackend({.threads = 1})).value();
  std::vector<std::byte> data(4096);
  const TensorView ragged{TensorType::kQ4_K, 2, 96, data.data(), "blk.0.attn_q.weight"};
  const Status status = backend->LoadMatrix({&ragged, 1}).status();
  EXPECT_EQ(status.field(), "blk.0.attn_q.weight");
  EXPECT_NE(status.message().find("multiple of 256"), std::string::npos);
  // Q4_0: the second block's scale is 8192, and -8 times that is no half.
  data[18 + 1] = std::byte{0x70};
  const TensorView large{TensorType::kQ4_0, 2, 64, data.data(), "blk.0.ffn_up.weight"};
  EXPECT_EQ(backend->LoadMatrix({&large, 1}).status().field(), "blk.0.ffn_up.weight");
  data[18 + 1] = std::byte{0x6f};
  EXPECT_TRUE(backend->LoadMatrix({&large, 1}).ok());
}

}  // namespace
}  // namespace renga
