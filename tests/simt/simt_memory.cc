#include "tests/simt/simt_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define RENGA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RENGA_ASAN 1
#endif
#endif
#if defined(RENGA_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace renga::test {
namespace {

constexpr int kUnwritten = 0xff;  // NaN in every format, an index far outside.

// Compilations without hooks do not see plain accesses; AddressSanitizer then does.
void ForbidRedZones([[maybe_unused]] const SimtBuffer& buffer,
                    [[maybe_unused]] int64_t storage_bytes) {
#if defined(RENGA_ASAN)
  const char* storage = buffer.storage.get();
  const size_t front = static_cast<size_t>(buffer.begin - storage);
  ASAN_POISON_MEMORY_REGION(storage, front);
  ASAN_POISON_MEMORY_REGION(buffer.begin + buffer.bytes,
                            static_cast<size_t>(storage_bytes - buffer.bytes) - front);
#endif
}

void AllowRedZones([[maybe_unused]] const SimtBuffer& buffer) {
#if defined(RENGA_ASAN)
  const int64_t front = buffer.begin - buffer.storage.get();
  ASAN_UNPOISON_MEMORY_REGION(
      buffer.storage.get(),
      static_cast<size_t>(front + buffer.bytes + SimtBuffer::kRedZone));
#endif
}

}  // namespace

SimtMemory::~SimtMemory() {
  for (const auto& [begin, buffer] : buffers_) AllowRedZones(buffer);
}

void* SimtMemory::Allocate(int64_t bytes, std::string name) {
  RENGA_CHECK(bytes >= 0);
  SimtBuffer buffer;
  buffer.name = name.empty() ? "buffer " + std::to_string(made_) : std::move(name);
  ++made_;
  buffer.bytes = bytes;
  const int64_t aligned = (bytes + SimtBuffer::kAlignment - 1) / SimtBuffer::kAlignment *
                          SimtBuffer::kAlignment;
  const int64_t storage_bytes = aligned + 2 * SimtBuffer::kRedZone;
  buffer.storage.reset(static_cast<char*>(std::aligned_alloc(
      static_cast<size_t>(SimtBuffer::kAlignment), static_cast<size_t>(storage_bytes))));
  RENGA_CHECK(buffer.storage != nullptr);
  std::memset(buffer.storage.get(), kUnwritten, static_cast<size_t>(storage_bytes));
  buffer.begin = buffer.storage.get() + SimtBuffer::kRedZone;
  ForbidRedZones(buffer, storage_bytes);
  const size_t granules = static_cast<size_t>((bytes >> SimtBuffer::kGranuleShift) + 1);
  buffer.shadow.reset(
      static_cast<GlobalShadow*>(std::calloc(granules, sizeof(GlobalShadow))));
  RENGA_CHECK(buffer.shadow != nullptr);
  buffer.chunk_launch.assign(static_cast<size_t>(bytes / SimtBuffer::kChunkBytes + 1), 0);
  char* begin = buffer.begin;
  buffers_.emplace(begin, std::move(buffer));
  return begin;
}

void SimtMemory::Free(void* memory) {
  const auto it = buffers_.find(static_cast<const char*>(memory));
  RENGA_CHECK(it != buffers_.end());
  AllowRedZones(it->second);
  recent_.fill(nullptr);
  buffers_.erase(it);
}

void SimtMemory::Name(const void* at, std::string name) {
  SimtBuffer* buffer = Find(at);
  RENGA_CHECK(buffer != nullptr);
  buffer->name = std::move(name);
}

SimtBuffer* SimtMemory::Find(const void* at) {
  const char* p = static_cast<const char*>(at);
  const auto near = [p](const SimtBuffer& buffer) {
    return p >= buffer.begin - SimtBuffer::kRedZone &&
           p < buffer.begin + buffer.bytes + SimtBuffer::kRedZone;
  };
  constexpr uintptr_t kStep = SimtBuffer::kChunkBytes;
  SimtBuffer*& recent = recent_[reinterpret_cast<uintptr_t>(at) / kStep % kRecent];
  if (recent != nullptr && near(*recent)) return recent;
  // As a number: the address may be anything.
  const uintptr_t behind = reinterpret_cast<uintptr_t>(at) + SimtBuffer::kRedZone;
  auto it = buffers_.upper_bound(reinterpret_cast<const char*>(behind));
  if (it == buffers_.begin()) return nullptr;
  --it;
  if (!near(it->second)) return nullptr;
  recent = &it->second;
  return recent;
}

bool SimtMemory::Holds(const void* at, int64_t bytes) {
  const SimtBuffer* buffer = Find(at);
  return bytes >= 0 && buffer != nullptr && buffer->Holds(at, bytes);
}

// Calls change(shadow) for the granules of a range.
template <class Change>
void SimtMemory::Each(const void* at, int64_t bytes, Change change) {
  if (bytes == 0) return;
  SimtBuffer* buffer = Find(at);
  RENGA_CHECK(buffer != nullptr && buffer->Holds(at, bytes));
  const int64_t offset = static_cast<const char*>(at) - buffer->begin;
  const int64_t last = (offset + bytes - 1) >> SimtBuffer::kGranuleShift;
  for (int64_t i = offset >> SimtBuffer::kGranuleShift; i <= last; ++i) {
    change(buffer->shadow[static_cast<size_t>(i)]);
  }
}

void SimtMemory::Write(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  MarkWritten(to, bytes);
  std::memmove(to, from, static_cast<size_t>(bytes));
}

void SimtMemory::Fill(void* to, uint8_t byte, int64_t bytes) {
  if (bytes == 0) return;
  MarkWritten(to, bytes);
  std::memset(to, byte, static_cast<size_t>(bytes));
}

void SimtMemory::Copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  std::vector<bool> written;
  Each(from, bytes, [&](GlobalShadow& shadow) {
    written.push_back(shadow.write_stamp != GlobalShadow::kNever);
  });
  size_t i = 0;
  Each(to, bytes, [&](GlobalShadow& shadow) {
    const bool was = written[std::min(i++, written.size() - 1)];
    shadow.write_stamp = was ? GlobalShadow::kHost : GlobalShadow::kNever;
  });
  std::memmove(to, from, static_cast<size_t>(bytes));
}

void SimtMemory::MarkWritten(const void* at, int64_t bytes) {
  Each(at, bytes, [](GlobalShadow& shadow) { shadow.write_stamp = GlobalShadow::kHost; });
}

void SimtMemory::Poison(void* at, int64_t bytes) {
  if (bytes == 0) return;
  Each(at, bytes,
       [](GlobalShadow& shadow) { shadow.write_stamp = GlobalShadow::kNever; });
  std::memset(at, kUnwritten, static_cast<size_t>(bytes));
}

bool SimtMemory::FullyWritten(const void* at, int64_t bytes) {
  bool all = true;
  Each(at, bytes, [&all](GlobalShadow& shadow) {
    all = all && shadow.write_stamp != GlobalShadow::kNever;
  });
  return all;
}

uint32_t SimtMemory::BeginLaunch(int64_t blocks) {
  RENGA_CHECK(blocks + 1 < int64_t{GlobalShadow::kAtomic} - GlobalShadow::kFirstLaunch);
  if (int64_t{next_stamp_} + blocks + 1 >= int64_t{GlobalShadow::kAtomic}) Forget();
  const uint32_t first = next_stamp_;
  next_stamp_ += static_cast<uint32_t>(blocks + 1);
  return first;
}

void SimtMemory::Forget() {
  for (auto& [begin, buffer] : buffers_) {
    Each(begin, buffer.bytes, [](GlobalShadow& shadow) {
      if (shadow.write_stamp != GlobalShadow::kNever) {
        shadow.write_stamp = GlobalShadow::kHost;
      }
      shadow.read_stamp = GlobalShadow::kNever;
    });
    std::fill(buffer.chunk_launch.begin(), buffer.chunk_launch.end(), 0u);
  }
  next_stamp_ = GlobalShadow::kFirstLaunch;
}

}  // namespace renga::test
