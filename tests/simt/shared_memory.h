// The shared memory of a block, with a shadow for its granules (two bytes, or one): who
// wrote and who read them, and whether a cp.async is in flight to them.
//
// Thread safety: none.

#pragma once

#include <cstdint>
#include <vector>

#include "tests/simt/touch.h"

namespace renga::test {

enum class Access : uint8_t { kRead, kWrite, kAtomic };

// Of shared memory: what is wrong with an access, or null.
struct SharedFault {
  const char* what = nullptr;
  int other_thread = -1;  // Whom it races with; -1: several, or nobody.
};

class SharedMemory {
 public:
  SharedMemory();

  // A new block: nothing is written (bytes 0xff).
  void Start(int32_t bytes, bool single_bytes, uint32_t block_tick);

  char* begin() const { return begin_; }
  int32_t bytes() const { return bytes_; }
  // In the memory or in the guards around it.
  bool Near(const void* at) const {
    const char* p = static_cast<const char*>(at);
    return p >= begin_ - kGuardBytes && p < begin_ + kMostBytes + kGuardBytes;
  }
  bool Holds(const void* at, int64_t bytes) const {
    const int64_t offset = static_cast<const char*>(at) - begin_;
    return offset >= 0 && offset + bytes <= bytes_;
  }

  // Notes an access and checks it. REQUIRES: Holds.
  SharedFault Note(const void* at, int bytes, Access access, const Toucher& by);
  // A cp.async of 16 bytes leaves; its destination has no value until it lands. Landed,
  // it is a write of its thread at that time.
  SharedFault Depart(char* to, const Toucher& by);
  void Land(char* to, const char* value, const Toucher& by);

 private:
  enum class State : uint8_t { kPlain, kAtomic, kInFlight };
  struct Granule {
    Touch write;
    Touch read;
    State state = State::kPlain;
  };
  static constexpr int64_t kGuardBytes = 4096;
  static constexpr int64_t kMostBytes = 256 * 1024;

  const char* NoteRead(Granule& granule, Access access, const Toucher& by,
                       const Touch** other) const;
  const char* NoteWrite(Granule& granule, Access access, const Toucher& by,
                        const Touch** other) const;

  std::vector<char> storage_;
  char* begin_ = nullptr;
  int32_t bytes_ = 0;
  int shift_ = 1;
  uint32_t block_tick_ = 0;  // What is older belongs to another block.
  std::vector<Granule> granules_;
};

}  // namespace renga::test
