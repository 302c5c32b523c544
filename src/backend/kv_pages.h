// KvPages: the memory of the KV pool, [page][layer][kv_head][K then V], reserved at once
// and touched when a page is first used. The layout inside is kPageLayoutF16 / F32 of
// include/renga/backend.h.
//
// Who owns which page is the engine's affair (KvPool). Thread rule: the backend's.

#pragma once

#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

class KvPages {
 public:
  KvPages() = default;
  static StatusOr<KvPages> Create(const KvGeometry& geometry, int64_t pages);

  const KvGeometry& geometry() const { return geometry_; }
  int64_t pages() const { return pages_; }
  int64_t page_bytes() const { return page_bytes_; }
  PageLayout layout() const {
    return geometry_.dtype == KvDtype::kF32 ? kPageLayoutF32 : kPageLayoutF16;
  }

  // K of one layer and KV head in page 0; page p is p * page_bytes() further.
  uint8_t* Base(int32_t layer, int32_t kv_head) {
    return buffer_.As<uint8_t>().data() +
           (int64_t{layer} * geometry_.kv_heads + kv_head) * HeadBytes();
  }

  Status Read(PageId page, std::span<std::byte> bytes) const;
  Status Write(PageId page, std::span<const std::byte> bytes);
  Status CopyHead(PageId from, PageId to, int32_t tokens);

 private:
  int64_t ElementBytes() const { return geometry_.dtype == KvDtype::kF32 ? 4 : 2; }
  // K and V of one layer and KV head in one page.
  int64_t HeadBytes() const {
    return 2 * int64_t{kPageTokens} * geometry_.head_dim * ElementBytes();
  }
  Status CheckPage(PageId page) const;
  void CopyHeadPositions(const uint8_t* from, uint8_t* to, int64_t tokens) const;

  KvGeometry geometry_;
  int64_t pages_ = 0;
  int64_t page_bytes_ = 0;
  AlignedBuffer buffer_;
};

}  // namespace renga
