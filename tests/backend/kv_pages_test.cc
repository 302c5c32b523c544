// Pages that leave and enter the pool, and copies of their heads.

#include "backend/kv_pages.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/memory_ledger.h"
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

TEST(KvPool, Int8PagesAreHalfAsLargeAndOpenPagesAreHalves) {
  const KvGeometry geometry{2, 2, 16, KvDtype::kInt8};
  EXPECT_EQ(KvPageBytes(geometry), 2 * 2 * (2 * 64 * 16 + 4 * 16 + 2 * 64));
  EXPECT_EQ(KvOpenPageBytes(geometry), KvPageBytes({2, 2, 16, KvDtype::kF16}));
  EXPECT_EQ(KvOpenPageBytes({2, 2, 16, KvDtype::kF16}), 0);
  const int64_t before = MemoryLedger::Process().Read(MemoryPurpose::kKvPool).bytes;
  const StatusOr<KvPages> pages = KvPages::Create(geometry, 5, 3);
  ASSERT_TRUE(pages.ok());
  EXPECT_EQ(MemoryLedger::Process().Read(MemoryPurpose::kKvPool).bytes - before,
            5 * KvPageBytes(geometry) + 3 * KvOpenPageBytes(geometry));
  EXPECT_EQ(pages->layout().id, kPageLayoutInt8.id);
}

TEST(KvPool, Int8NeedsHeadsOfAMultipleOf16) {
  for (const int32_t head_dim : {2, 8, 10, 24, 40}) {
    const Status refused = CheckKvGeometry({2, 2, head_dim, KvDtype::kInt8});
    EXPECT_EQ(refused.field(), "kv.dtype") << head_dim;
    EXPECT_TRUE(CheckKvGeometry({2, 2, head_dim, KvDtype::kF16}).ok());
  }
  EXPECT_TRUE(CheckKvGeometry({2, 2, 48, KvDtype::kInt8}).ok());
}

TEST(KvPool, WithInt8HeadsOfOpenPagesAreCopied) {
  StatusOr<KvPages> made = KvPages::Create({2, 2, 16, KvDtype::kInt8}, 5, 3);
  ASSERT_TRUE(made.ok());
  KvPages& pages = *made;
  const auto fill = [&](PageId page, uint8_t value) {
    std::memset(pages.OpenHead(page, 0, 0), value,
                static_cast<size_t>(pages.open_page_bytes()));
  };
  for (const int32_t tokens : {0, 1, 16, 33, 63, 64}) {
    fill(0, 7);
    fill(2, 1);
    ASSERT_TRUE(pages.CopyHead(0, 2, tokens).ok());
    for (int32_t layer = 0; layer < 2; ++layer) {
      for (int32_t head = 0; head < 2; ++head) {
        const uint8_t* const copy = pages.OpenHead(2, layer, head);
        for (int32_t i = 0; i < 2 * 64 * 16; ++i) {
          const int32_t position =
              i < 64 * 16 ? i / 256 * 16 + i % 16 : (i - 64 * 16) / 16;
          ASSERT_EQ(copy[2 * i], position < tokens ? 7 : 1) << tokens << " " << i;
          ASSERT_EQ(copy[2 * i + 1], position < tokens ? 7 : 1) << tokens << " " << i;
        }
      }
    }
  }
  EXPECT_FALSE(pages.CopyHead(0, 3, 1).ok()) << "a page, but no open page";
  EXPECT_FALSE(pages.CopyHead(-1, 0, 1).ok());
}

TEST(KvPool, RefusesOtherGeometriesDtypesAndASecondPool) {
  auto backend = std::move(MakeCpuBackend({.threads = 1})).value();
  KvGeometry geometry{2, 2, 16, KvDtype::kF16};
  EXPECT_FALSE(backend->CreateKvPool(geometry, 4).ok());  // Not configured.
  ASSERT_TRUE(backend->Configure(TinyShape(), {8, 8, 8, 4}).ok());
  EXPECT_FALSE(backend->CreateKvPool({2, 2, 18, KvDtype::kF16}, 4).ok());
  EXPECT_EQ(backend->CreateKvPool({2, 2, 16, KvDtype::kBf16}, 4).field(), "kv.dtype");
  EXPECT_FALSE(backend->CreateKvPool(geometry, 0).ok());
  EXPECT_FALSE(backend->CreateKvPool(geometry, std::numeric_limits<int64_t>::max()).ok());
  EXPECT_FALSE(backend->BeginStep({}, {}).ok());
  ASSERT_TRUE(backend->CreateKvPool(geometry, 4).ok());
  EXPECT_FALSE(backend->CreateKvPool(geometry, 4).ok());
  EXPECT_FALSE(backend->Configure(TinyShape(), {8, 8, 8, 4}).ok());
}

}  // namespace
}  // namespace renga
