// KvPages: the memory of the KV pool, [page][layer][kv_head][K then V], reserved at once
// and touched when a page is first used. The layout inside is kPageLayoutF16 / F32 /
// Int8 of include/renga/backend.h.
//
// int8 pages hold whole chunks; the chunk that a sequence is at lies in an open page, a
// pool of its own in the layout of kPageLayoutF16 ([open page][layer][kv_head]).
//
// Who owns which page is the engine's affair (KvPool). Thread rule: the backend's.

#pragma once

#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

// Bytes of one page, all layers; of one open page (0: there are none).
// REQUIRES: CheckKvGeometry is OK.
int64_t KvPageBytes(const KvGeometry& geometry);
int64_t KvOpenPageBytes(const KvGeometry& geometry);

// Whether there are such pages. Errors name kv.dtype.
Status CheckKvGeometry(const KvGeometry& geometry);

class KvPages {
 public:
  KvPages() = default;
  // `open_pages` are reserved if the dtype has them.
  static StatusOr<KvPages> Create(const KvGeometry& geometry, int64_t pages,
                                  int64_t open_pages);

  const KvGeometry& geometry() const { return geometry_; }
  bool has_open_pages() const { return HasOpenPages(geometry_.dtype); }
  int64_t pages() const { return pages_; }
  int64_t page_bytes() const { return page_bytes_; }
  int64_t open_page_bytes() const { return open_page_bytes_; }
  PageLayout layout() const;

  // K of one layer and KV head in page 0; page p is p * page_bytes() further.
  uint8_t* Base(int32_t layer, int32_t kv_head) {
    return buffer_.As<uint8_t>().data() + HeadIndex(layer, kv_head) * head_bytes_;
  }
  // The same in an open page.
  uint8_t* OpenHead(PageId open_page, int32_t layer, int32_t kv_head) {
    return open_buffer_.As<uint8_t>().data() + open_page * open_page_bytes_ +
           HeadIndex(layer, kv_head) * OpenHeadBytes();
  }
  // K and V of one layer and KV head in an open page.
  int64_t OpenHeadBytes() const { return 4 * int64_t{kPageTokens} * geometry_.head_dim; }

  Status Read(PageId page, std::span<std::byte> bytes) const;
  Status Write(PageId page, std::span<const std::byte> bytes);
  // Of a page; of an open page, if there are any.
  Status CopyHead(PageId from, PageId to, int32_t tokens);

 private:
  int64_t HeadIndex(int32_t layer, int32_t kv_head) const {
    return int64_t{layer} * geometry_.kv_heads + kv_head;
  }
  Status CheckBytes(PageId page, size_t bytes) const;

  KvGeometry geometry_;
  int64_t pages_ = 0;
  int64_t open_pages_ = 0;
  int64_t head_bytes_ = 0;  // K and V of one layer and KV head in one page.
  int64_t page_bytes_ = 0;
  int64_t open_page_bytes_ = 0;
  AlignedBuffer buffer_;
  AlignedBuffer open_buffer_;
};

// Copies the first `tokens` positions of one head, K and V, from one page to another of
// the layouts F32 and F16.
void CopyHeadPositions(const uint8_t* from, uint8_t* to, int64_t head_dim,
                       int64_t element_bytes, int64_t tokens);

}  // namespace renga
