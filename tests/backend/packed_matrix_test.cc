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

}  // namespace
}  // namespace renga
