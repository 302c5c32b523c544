// See kv_pages.h.

#include "backend/kv_pages.h"

#include <cstring>
#include <limits>
#include <string>

#include "base/status_macros.h"
#include "kernels/kv_page_format.h"

namespace renga {

namespace {

constexpr int32_t kInt8HeadUnit = 16;  // Channels; see kernels/kv_page_format.h.

int64_t ElementBytes(KvDtype dtype) { return dtype == KvDtype::kF32 ? 4 : 2; }

int64_t HeadBytes(const KvGeometry& geometry) {
  if (geometry.dtype == KvDtype::kInt8) return Int8PageOf(geometry.head_dim).bytes;
  return 2 * int64_t{kPageTokens} * geometry.head_dim * ElementBytes(geometry.dtype);
}

int64_t Heads(const KvGeometry& geometry) {
  return int64_t{geometry.layers} * geometry.kv_heads;
}

Status CheckPage(PageId page, int64_t pages) {
  if (page >= 0 && page < pages) return OkStatus();
  return InvalidArgument("page", "page " + std::to_string(page) +
                                     " is not in a pool of " + std::to_string(pages));
}

StatusOr<AlignedBuffer> Reserve(int64_t pages, int64_t page_bytes) {
  if (pages > std::numeric_limits<int64_t>::max() / page_bytes) {
    return InvalidArgument("kv.pool_bytes", "the pool's size overflows");
  }
  AlignedBuffer buffer = AlignedBuffer::Allocate(static_cast<size_t>(pages * page_bytes),
                                                 MemoryPurpose::kKvPool);
  if (buffer.data() != nullptr) return buffer;
  return ResourceExhausted("no address space for a KV pool of " +
                           std::to_string(pages * page_bytes) + " bytes");
}

}  // namespace

int64_t KvPageBytes(const KvGeometry& geometry) {
  return Heads(geometry) * HeadBytes(geometry);
}

int64_t KvOpenPageBytes(const KvGeometry& geometry) {
  if (!HasOpenPages(geometry.dtype)) return 0;
  return Heads(geometry) * 4 * kPageTokens * geometry.head_dim;
}

Status CheckKvGeometry(const KvGeometry& geometry) {
  if (geometry.layers < 1 || geometry.kv_heads < 1 || geometry.head_dim < 1) {
    return InvalidArgument("kv", "layers, KV heads and head size must be positive");
  }
  if (geometry.dtype == KvDtype::kInt8 && geometry.head_dim % kInt8HeadUnit != 0) {
    return InvalidArgument(
        "kv.dtype", "int8 needs heads of a multiple of 16 channels; this model's have " +
                        std::to_string(geometry.head_dim));
  }
  return OkStatus();
}

StatusOr<KvPages> KvPages::Create(const KvGeometry& geometry, int64_t pages,
                                  int64_t open_pages) {
  RENGA_RETURN_IF_ERROR(CheckKvGeometry(geometry));
  if (pages < 1 || pages > std::numeric_limits<PageId>::max()) {
    return InvalidArgument("kv.pool_bytes",
                           "a pool of " + std::to_string(pages) + " pages is impossible");
  }
  KvPages pool;
  pool.geometry_ = geometry;
  pool.pages_ = pages;
  pool.head_bytes_ = HeadBytes(geometry);
  pool.page_bytes_ = KvPageBytes(geometry);
  RENGA_ASSIGN_OR_RETURN(pool.buffer_, Reserve(pages, pool.page_bytes_));
  if (!pool.has_open_pages()) return pool;
  pool.open_pages_ = open_pages;
  pool.open_page_bytes_ = KvOpenPageBytes(geometry);
  RENGA_ASSIGN_OR_RETURN(pool.open_buffer_, Reserve(open_pages, pool.open_page_bytes_));
  return pool;
}

PageLayout KvPages::layout() const {
  if (geometry_.dtype == KvDtype::kInt8) return kPageLayoutInt8;
  return geometry_.dtype == KvDtype::kF32 ? kPageLayoutF32 : kPageLayoutF16;
}

Status KvPages::CheckBytes(PageId page, size_t bytes) const {
  RENGA_RETURN_IF_ERROR(CheckPage(page, pages_));
  if (static_cast<int64_t>(bytes) == page_bytes_) return OkStatus();
  return InvalidArgument("bytes", "a page has " + std::to_string(page_bytes_) +
                                      " bytes, not " + std::to_string(bytes));
}

Status KvPages::Read(PageId page, std::span<std::byte> bytes) const {
  RENGA_RETURN_IF_ERROR(CheckBytes(page, bytes.size()));
  std::memcpy(bytes.data(), buffer_.data() + page * page_bytes_, bytes.size());
  return OkStatus();
}

Status KvPages::Write(PageId page, std::span<const std::byte> bytes) {
  RENGA_RETURN_IF_ERROR(CheckBytes(page, bytes.size()));
  std::memcpy(buffer_.data() + page * page_bytes_, bytes.data(), bytes.size());
  return OkStatus();
}

Status KvPages::CopyHead(PageId from, PageId to, int32_t tokens) {
  const bool open = has_open_pages();
  RENGA_RETURN_IF_ERROR(CheckPage(from, open ? open_pages_ : pages_));
  RENGA_RETURN_IF_ERROR(CheckPage(to, open ? open_pages_ : pages_));
  if (tokens < 0 || tokens > kPageTokens) {
    return InvalidArgument("tokens",
                           "a page has 64 positions, not " + std::to_string(tokens));
  }
  if (from == to) return OkStatus();
  for (int32_t layer = 0; layer < geometry_.layers; ++layer) {
    for (int32_t head = 0; head < geometry_.kv_heads; ++head) {
      const uint8_t* source =
          open ? OpenHead(from, layer, head) : Base(layer, head) + from * page_bytes_;
      uint8_t* target =
          open ? OpenHead(to, layer, head) : Base(layer, head) + to * page_bytes_;
      CopyHeadPositions(source, target, geometry_.head_dim, ElementBytes(geometry_.dtype),
                        tokens);
    }
  }
  return OkStatus();
}

void CopyHeadPositions(const uint8_t* from, uint8_t* to, int64_t head_dim,
                       int64_t element_bytes, int64_t tokens) {
  const int64_t whole_blocks = tokens / 16;
  const int64_t block_bytes = head_dim * 16 * element_bytes;
  std::memcpy(to, from, static_cast<size_t>(whole_blocks * block_bytes));
  for (int64_t i = 0; i < head_dim && tokens % 16 != 0; ++i) {
    const int64_t offset = whole_blocks * block_bytes + i * 16 * element_bytes;
    std::memcpy(to + offset, from + offset,
                static_cast<size_t>(tokens % 16 * element_bytes));
  }
  const int64_t v = int64_t{kPageTokens} * head_dim * element_bytes;
  std::memcpy(to + v, from + v, static_cast<size_t>(tokens * head_dim * element_bytes));
}

}  // namespace renga
