// Pages that leave and enter the pool, and copies of their heads.

#include <gtest/gtest.h>

#include "tests/backend/tiny_model.h"

namespace renga {
namespace {

TEST(KvPool, PagesTravelAndHeadsAreCopiedWithoutTheRest) {
  for (const KvDtype dtype : {KvDtype::kF16, KvDtype::kF32}) {
    TinyRunner runner(MakeModel({TensorType::kF32}, TinyShape()), {.threads = 1}, dtype);
    Backend& backend = runner.backend();
    const size_t bytes = static_cast<size_t>(backend.page_bytes());
    const size_t element = dtype == KvDtype::kF16 ? 2 : 4;
    ASSERT_EQ(bytes, 2u * 2 * 2 * 64 * 16 * element);
    std::vector<std::byte> source(bytes), target(bytes), read(bytes);
    for (size_t i = 0; i < bytes; ++i) source[i] = static_cast<std::byte>(1 + i % 127);
    for (const int32_t tokens : {0, 1, 15, 16, 17, 63, 64}) {
      ASSERT_TRUE(backend.WritePage(3, source).ok());
      ASSERT_TRUE(backend.WritePage(9, target).ok());
      ASSERT_TRUE(backend.CopyPageHead(3, 9, tokens).ok());
      ASSERT_TRUE(backend.ReadPage(9, read).ok());
      for (size_t i = 0; i < bytes; ++i) {
        // Which position does this byte belong to? [layer, head][K, V][...]
        const size_t inside = i / element % (2 * 64 * 16);
        const size_t position =
            inside < 64 * 16 ? inside / 256 * 16 + inside % 16 : (inside - 64 * 16) / 16;
        const bool copied = position < static_cast<size_t>(tokens);
        ASSERT_EQ(read[i], copied ? source[i] : std::byte{0}) << tokens << " " << i;
      }
    }
    EXPECT_FALSE(backend.ReadPage(64, read).ok());
    EXPECT_FALSE(backend.WritePage(-1, source).ok());
    EXPECT_FALSE(backend.CopyPageHead(0, 64, 1).ok());
    EXPECT_FALSE(backend.CopyPageHead(0, 1, 65).ok());
    read.pop_back();
    EXPECT_FALSE(backend.ReadPage(0, read).ok());
  }
}

TEST(KvPool, RefusesOtherGeometriesDtypesAndASecondPool) {
  auto backend = std::move(MakeCpuBackend({.threads = 1})).value();
  KvGeometry geometry{2, 2, 16, KvDtype::kF16};
  EXPECT_FALSE(backend->CreateKvPool(geometry, 4).ok());  // Not configured.
  ASSERT_TRUE(backend->Configure(TinyShape(), {8, 8, 8, 4}).ok());
  EXPECT_FALSE(backend->CreateKvPool({2, 2, 18, KvDtype::kF16}, 4).ok());
  EXPECT_FALSE(backend->CreateKvPool({2, 2, 16, KvDtype::kInt8}, 4).ok());
  EXPECT_FALSE(backend->CreateKvPool(geometry, 0).ok());
  EXPECT_FALSE(backend->CreateKvPool(geometry, std::numeric_limits<int64_t>::max()).ok());
  EXPECT_FALSE(backend->BeginStep({}, {}).ok());
  ASSERT_TRUE(backend->CreateKvPool(geometry, 4).ok());
  EXPECT_FALSE(backend->CreateKvPool(geometry, 4).ok());
  EXPECT_FALSE(backend->Configure(TinyShape(), {8, 8, 8, 4}).ok());
}

}  // namespace
}  // namespace renga
