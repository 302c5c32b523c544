// See kv_pages.h.

#include "backend/kv_pages.h"

#include <cstring>
#include <limits>
#include <string>

namespace renga {

StatusOr<KvPages> KvPages::Create(const KvGeometry& geometry, int64_t pages) {
  if (geometry.dtype != KvDtype::kF16 && geometry.dtype != KvDtype::kF32) {
    return Status(StatusCode::kUnimplemented,
                  "the CPU backend has f16 and f32 pages, not " +
                      std::string(KvDtypeName(geometry.dtype)))
        .WithField("kv.dtype");
  }
  if (geometry.layers < 1 || geometry.kv_heads < 1 || geometry.head_dim < 1) {
    return InvalidArgument("kv", "layers, KV heads and head size must be positive");
  }
  if (pages < 1 || pages > std::numeric_limits<PageId>::max()) {
    return InvalidArgument("kv.pool_bytes",
                           "a pool of " + std::to_string(pages) + " pages is impossible");
  }
  KvPages pool;
  pool.geometry_ = geometry;
  pool.pages_ = pages;
  pool.page_bytes_ = int64_t{geometry.layers} * geometry.kv_heads * pool.HeadBytes();
  if (pages > std::numeric_limits<int64_t>::max() / pool.page_bytes_) {
    return InvalidArgument("kv.pool_bytes", "the pool's size overflows");
  }
  pool.buffer_ = AlignedBuffer::Allocate(static_cast<size_t>(pages * pool.page_bytes_),
                                         MemoryPurpose::kKvPool);
  if (pool.buffer_.data() == nullptr) {
    return ResourceExhausted("no address space for a KV pool of " +
                             std::to_string(pages * pool.page_bytes_) + " bytes");
  }
  return pool;
}

Status KvPages::CheckPage(PageId page) const {
  if (page >= 0 && page < pages_) return OkStatus();
  return InvalidArgument("page", "page " + std::to_string(page) +
                                     " is not in a pool of " + std::to_string(pages_));
}

Status KvPages::Read(PageId page, std::span<std::byte> bytes) const {
  if (Status status = CheckPage(page); !status.ok()) return status;
  if (static_cast<int64_t>(bytes.size()) != page_bytes_) {
    return InvalidArgument("bytes", "a page has " + std::to_string(page_bytes_) +
                                        " bytes, not " + std::to_string(bytes.size()));
  }
  std::memcpy(bytes.data(), buffer_.data() + page * page_bytes_, bytes.size());
  return OkStatus();
}

Status KvPages::Write(PageId page, std::span<const std::byte> bytes) {
  if (Status status = CheckPage(page); !status.ok()) return status;
  if (static_cast<int64_t>(bytes.size()) != page_bytes_) {
    return InvalidArgument("bytes", "a page has " + std::to_string(page_bytes_) +
                                        " bytes, not " + std::to_string(bytes.size()));
  }
  std::memcpy(buffer_.data() + page * page_bytes_, bytes.data(), bytes.size());
  return OkStatus();
}

Status KvPages::CopyHead(PageId from, PageId to, int32_t tokens) {
  if (Status status = CheckPage(from); !status.ok()) return status;
  if (Status status = CheckPage(to); !status.ok()) return status;
  if (tokens < 0 || tokens > kPageTokens) {
    return InvalidArgument("tokens",
                           "a page has 64 positions, not " + std::to_string(tokens));
  }
  if (from == to) return OkStatus();
  for (int32_t layer = 0; layer < geometry_.layers; ++layer) {
    for (int32_t head = 0; head < geometry_.kv_heads; ++head) {
      uint8_t* base = Base(layer, head);
      CopyHeadPositions(base + from * page_bytes_, base + to * page_bytes_, tokens);
    }
  }
  return OkStatus();
}

void KvPages::CopyHeadPositions(const uint8_t* from, uint8_t* to, int64_t tokens) const {
  const int64_t element = ElementBytes();
  const int64_t hd = geometry_.head_dim;
  const int64_t whole_blocks = tokens / 16;
  const int64_t block_bytes = hd * 16 * element;
  std::memcpy(to, from, static_cast<size_t>(whole_blocks * block_bytes));
  for (int64_t i = 0; i < hd && tokens % 16 != 0; ++i) {
    const int64_t offset = whole_blocks * block_bytes + i * 16 * element;
    std::memcpy(to + offset, from + offset, static_cast<size_t>(tokens % 16 * element));
  }
  const int64_t v = int64_t{kPageTokens} * hd * element;
  std::memcpy(to + v, from + v, static_cast<size_t>(tokens * hd * element));
}

}  // namespace renga
