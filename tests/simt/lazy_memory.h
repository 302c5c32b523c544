// LazyMemory: device and pinned memory of LazyDevice. It gives memory out again as soon
// as it can, last freed first, and knows at which moment of the host each block was
// alive.
//
// Thread safety: none.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_ledger.h"
#include "tests/simt/simt.h"
#include "tests/simt/simt_memory.h"

namespace renga::test {

class LazyMemory {
 public:
  // `now`: the host's number, which grows.
  void* AllocateDevice(int64_t bytes, MemoryPurpose purpose, int64_t now);
  void* AllocatePinned(int64_t bytes, int64_t now);
  // What the block held, or an empty range where there is none.
  MemoryRange FreeDevice(void* memory, int64_t now);
  MemoryRange FreePinned(void* memory, int64_t now);

  // Empty, or what is wrong with using the range, if it begins in pinned memory, now.
  std::string CheckPinned(const void* at, int64_t bytes) const;
  // Whether the range lies in pinned memory, whole and alive.
  bool IsPinned(const void* at, int64_t bytes) const;
  // Empty, or what is wrong with touching the range in a call of that moment of the host.
  std::string CheckAlive(const MemoryRange& range, int64_t called) const;

  // "byte 64 of tables", or of how many bytes where it has no name.
  std::string Describe(const char* at) const;
  // The block that `at` points into, in reports.
  void Name(const void* at, std::string name);

  SimtMemory& device() { return device_; }
  int64_t used_bytes() const { return used_bytes_; }
  int64_t most_bytes() const { return most_bytes_; }
  std::vector<std::string> Leaks() const;

 private:
  struct Life {
    int64_t born = 0;
    int64_t died = 0;  // 0: it lives.
  };
  struct Block {
    int64_t bytes = 0;
    bool pinned = false;
    std::vector<Life> lives{};
    std::string name{};
    MemoryBooking booking{};
    std::unique_ptr<char[], FreeMemory> storage{};  // Of a pinned one.

    bool alive() const { return lives.back().died == 0; }
  };
  using Blocks = std::map<const char*, Block>;

  Blocks::const_iterator Find(const void* at) const;
  // A freed block of that size; null: none.
  char* TakeFreed(int64_t bytes, bool pinned, int64_t now);
  MemoryRange Free(void* memory, bool pinned, int64_t now);

  SimtMemory device_;
  Blocks blocks_;             // By address; also what was freed.
  std::vector<char*> freed_;  // Last freed last.
  int64_t used_bytes_ = 0;
  int64_t most_bytes_ = 0;
};

}  // namespace renga::test
