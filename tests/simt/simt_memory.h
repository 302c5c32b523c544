// SimtMemory: the global memory of an emulated device. Buffers lie apart, between red
// zones, and every two bytes have a shadow: who wrote and who read them last.
//
// Thread safety: none.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/simt/touch.h"

namespace renga::test {

// Whether kernels were compiled with hooks on plain loads and stores. Without them only
// what goes through the context is checked and counted, and nobody knows what was never
// written.
#if defined(RENGA_SIMT_HOOKS)
inline constexpr bool kSimtHooks = true;
#else
inline constexpr bool kSimtHooks = false;
#endif

// Who touched two bytes. Stamps are numbers that only grow: every block of every launch
// has its own (SimtMemory::BeginLaunch).
struct GlobalShadow {
  static constexpr uint32_t kNever = 0;  // What is there has no meaning.
  static constexpr uint32_t kHost = 1;   // A copy or fill, or a launch long ago.
  static constexpr uint32_t kFirstLaunch = 2;
  static constexpr uint32_t kAtomic = uint32_t{1} << 31;  // With a write's stamp.

  uint32_t write_stamp;
  uint32_t read_stamp;
  Touch write;  // Inside the block of the stamp.
  Touch read;
};

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

struct SimtBuffer {
  static constexpr int64_t kRedZone = 256;
  static constexpr int64_t kAlignment = 256;
  static constexpr int kGranuleShift = 1;  // Two bytes.
  static constexpr int64_t kChunkBytes = 4096;

  std::string name;
  char* begin = nullptr;
  int64_t bytes = 0;
  std::unique_ptr<char[], FreeMemory> storage{};
  // calloc's: pages of it that nobody touches take no memory.
  std::unique_ptr<GlobalShadow[], FreeMemory> shadow{};
  std::vector<uint32_t> chunk_launch{};  // The last launch that touched the chunk.

  bool Holds(const void* at, int64_t size) const {
    const char* p = static_cast<const char*>(at);
    return p >= begin && p - begin + size <= bytes;
  }
};

class SimtMemory {
 public:
  SimtMemory() = default;
  ~SimtMemory();
  SimtMemory(const SimtMemory&) = delete;
  SimtMemory& operator=(const SimtMemory&) = delete;

  // Aligned to 256 bytes, all bytes 0xff, never written. Never null.
  void* Allocate(int64_t bytes, std::string name = {});
  void Free(void* memory);  // As Allocate returned it.
  // The buffer that `at` points into.
  void Name(const void* at, std::string name);
  const std::map<const char*, SimtBuffer>& buffers() const { return buffers_; }

  // The buffer that `at` points into, or at whose red zones; null: wild.
  SimtBuffer* Find(const void* at);
  // Whether the range lies inside one buffer.
  bool Holds(const void* at, int64_t bytes);

  // ---- What the host does. REQUIRES: Holds(...).
  void Write(void* to, const void* from, int64_t bytes);
  void Fill(void* to, uint8_t byte, int64_t bytes);
  void Copy(void* to, const void* from, int64_t bytes);  // With what was never written.
  void MarkWritten(const void* at, int64_t bytes);
  // Bytes 0xff, and reading them in a kernel is an error until they are written.
  void Poison(void* at, int64_t bytes);
  // By the host, or by a kernel as far as it was seen (kSimtHooks).
  bool FullyWritten(const void* at, int64_t bytes);

  // ---- For RunKernel. Numbers for a launch of `blocks` blocks: the first stands for
  // several blocks at once, block b has first + 1 + b.
  uint32_t BeginLaunch(int64_t blocks);

 private:
  template <class Change>
  void Each(const void* at, int64_t bytes, Change change);
  void Forget();  // All launches: the numbers start again.

  std::map<const char*, SimtBuffer> buffers_;  // By begin.
  // Found lately, by address: accesses come again and again.
  static constexpr size_t kRecent = 64;
  std::array<SimtBuffer*, kRecent> recent_{};
  int64_t made_ = 0;
  uint32_t next_stamp_ = GlobalShadow::kFirstLaunch;
};

}  // namespace renga::test
