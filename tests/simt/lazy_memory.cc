#include "tests/simt/lazy_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace renga::test {

namespace {

constexpr size_t kPinnedAlignment = 256;

}  // namespace

LazyMemory::Blocks::const_iterator LazyMemory::Find(const void* at) const {
  const char* p = static_cast<const char*>(at);
  auto next = blocks_.upper_bound(p);
  if (next == blocks_.begin()) return blocks_.end();
  --next;
  return p < next->first + std::max<int64_t>(next->second.bytes, 1) ? next
                                                                    : blocks_.end();
}

char* LazyMemory::TakeFreed(int64_t bytes, bool pinned, int64_t now) {
  for (auto it = freed_.rbegin(); it != freed_.rend(); ++it) {
    char* memory = *it;
    Block& block = blocks_.at(memory);
    if (block.bytes != bytes || block.pinned != pinned) continue;
    freed_.erase(std::next(it).base());
    block.lives.push_back({.born = now});
    block.name.clear();
    return memory;
  }
  return nullptr;
}

void* LazyMemory::AllocateDevice(int64_t bytes, MemoryPurpose purpose, int64_t now) {
  used_bytes_ += bytes;
  most_bytes_ = std::max(most_bytes_, used_bytes_);
  char* memory = TakeFreed(bytes, false, now);
  if (memory == nullptr) {
    memory = static_cast<char*>(device_.Allocate(bytes));
    blocks_[memory] = {.bytes = bytes, .pinned = false, .lives = {{.born = now}}};
  }
  blocks_.at(memory).booking = MemoryBooking(purpose, bytes);
  return memory;
}

void* LazyMemory::AllocatePinned(int64_t bytes, int64_t now) {
  char* memory = TakeFreed(bytes, true, now);
  if (memory == nullptr) {
    const size_t whole =
        (static_cast<size_t>(bytes) / kPinnedAlignment + 1) * kPinnedAlignment;
    memory = static_cast<char*>(std::aligned_alloc(kPinnedAlignment, whole));
    RENGA_CHECK(memory != nullptr);
    Block block{.bytes = bytes, .pinned = true, .lives = {{.born = now}}};
    block.storage.reset(memory);
    blocks_[memory] = std::move(block);
  }
  std::memset(memory, 0xff, static_cast<size_t>(bytes));
  return memory;
}

MemoryRange LazyMemory::Free(void* memory, bool pinned, int64_t now) {
  const auto found = blocks_.find(static_cast<const char*>(memory));
  if (found == blocks_.end() || found->second.pinned != pinned ||
      !found->second.alive()) {
    return {};
  }
  Block& block = found->second;
  block.lives.back().died = now;
  block.booking = MemoryBooking();
  freed_.push_back(static_cast<char*>(memory));
  return {found->first, block.bytes};
}

MemoryRange LazyMemory::FreeDevice(void* memory, int64_t now) {
  const MemoryRange range = Free(memory, false, now);
  if (range.begin == nullptr) return range;
  used_bytes_ -= range.bytes;
  device_.Poison(memory, range.bytes);
  return range;
}

MemoryRange LazyMemory::FreePinned(void* memory, int64_t now) {
  const MemoryRange range = Free(memory, true, now);
  if (range.begin != nullptr) {
    std::memset(memory, 0xff, static_cast<size_t>(range.bytes));
  }
  return range;
}

std::string LazyMemory::CheckPinned(const void* at, int64_t bytes) const {
  const auto found = Find(at);
  if (found == blocks_.end() || !found->second.pinned) return "";
  if (!found->second.alive()) return "uses pinned memory that was freed";
  if (IsPinned(at, bytes)) return "";
  return "reaches beyond pinned memory of " + std::to_string(found->second.bytes) +
         " bytes";
}

bool LazyMemory::IsPinned(const void* at, int64_t bytes) const {
  const auto found = Find(at);
  return found != blocks_.end() && found->second.pinned && found->second.alive() &&
         static_cast<const char*>(at) + bytes <= found->first + found->second.bytes;
}

std::string LazyMemory::CheckAlive(const MemoryRange& range, int64_t called) const {
  if (range.bytes == 0) return "";
  const auto found = Find(range.begin);
  if (found == blocks_.end()) return "touches memory that nobody allocated";
  const Block& block = found->second;
  if (range.begin + range.bytes > found->first + block.bytes) {
    return "touches memory beyond an allocation of " + std::to_string(block.bytes) +
           " bytes";
  }
  for (const Life& life : block.lives) {
    if (life.born <= called && (life.died == 0 || life.died > called)) return "";
  }
  return "touches memory that was freed before the call";
}

std::string LazyMemory::Describe(const char* at) const {
  const auto found = Find(at);
  if (found == blocks_.end()) return "memory that nobody allocated";
  const Block& block = found->second;
  std::string where = "byte " + std::to_string(at - found->first) + " of ";
  if (!block.name.empty()) return where + block.name;
  return where + std::to_string(block.bytes) +
         (block.pinned ? " pinned bytes" : " bytes of the device");
}

void LazyMemory::Name(const void* at, std::string name) {
  const auto found = Find(at);
  RENGA_CHECK(found != blocks_.end());
  blocks_.at(found->first).name = name;
  if (!found->second.pinned) device_.Name(at, std::move(name));
}

std::vector<std::string> LazyMemory::Leaks() const {
  std::vector<std::string> leaks;
  for (const auto& [memory, block] : blocks_) {
    if (!block.alive()) continue;
    leaks.push_back(std::to_string(block.bytes) +
                    (block.pinned ? " bytes of pinned memory" : " bytes of the device"));
  }
  return leaks;
}

}  // namespace renga::test
