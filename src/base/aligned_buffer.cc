#include "base/aligned_buffer.h"

#include <sys/mman.h>

namespace renga {

namespace {
constexpr size_t kHugePageBytes = size_t{2} << 20;
}  // namespace

AlignedBuffer AlignedBuffer::Allocate(size_t bytes, MemoryPurpose purpose) {
  if (bytes == 0) return AlignedBuffer();
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return AlignedBuffer();
  if (bytes >= kHugePageBytes) madvise(data, bytes, MADV_HUGEPAGE);
  return AlignedBuffer(static_cast<std::byte*>(data), bytes, purpose);
}

void AlignedBuffer::Free() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace renga
