#include "tests/simt/shared_memory.h"

#include <cstring>

#include "tests/simt/simt_memory.h"

namespace renga::test {
namespace {

constexpr int kUnwritten = 0xff;
constexpr int kCopyBytes = 16;
constexpr uintptr_t kAlignment = 1024;

}  // namespace

SharedMemory::SharedMemory()
    : storage_(static_cast<size_t>(kMostBytes + 2 * kGuardBytes) + kAlignment) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(storage_.data()) + kGuardBytes;
  begin_ = reinterpret_cast<char*>((at + kAlignment - 1) / kAlignment * kAlignment);
}

void SharedMemory::Start(int32_t bytes, bool single_bytes, uint32_t block_tick) {
  bytes_ = bytes;
  shift_ = single_bytes ? 0 : 1;
  block_tick_ = block_tick;
  std::memset(begin_, kUnwritten, static_cast<size_t>(bytes));
  const size_t granules = static_cast<size_t>(bytes >> shift_) + 1;
  if (granules_.size() < granules) granules_.resize(granules);
}

const char* SharedMemory::NoteRead(Granule& granule, Access access, const Toucher& by,
                                   const Touch** other) const {
  *other = &granule.write;
  if (granule.write.tick < block_tick_) {
    if (access == Access::kRead) granule.read.Add(by);
    return kSimtHooks ? "read of uninitialised shared memory" : nullptr;
  }
  if (granule.state == State::kInFlight) {
    return "read of shared memory with a cp.async in flight (no wait)";
  }
  const bool both_atomic = access == Access::kAtomic && granule.state == State::kAtomic;
  const bool race = !both_atomic && !granule.write.OrderedBefore(by);
  if (access == Access::kRead) granule.read.Add(by);
  return race ? "shared race: read after write" : nullptr;
}

const char* SharedMemory::NoteWrite(Granule& granule, Access access, const Toucher& by,
                                    const Touch** other) const {
  const bool fresh = granule.write.tick < block_tick_;
  const bool both_atomic = access == Access::kAtomic && granule.state == State::kAtomic;
  const char* what = nullptr;
  *other = &granule.write;
  if (!fresh && granule.state == State::kInFlight) {
    what = "write of shared memory with a cp.async in flight (no wait)";
  } else if (!fresh && !both_atomic && !granule.write.OrderedBefore(by)) {
    what = "shared race: write after write";
  } else if (!granule.read.OrderedBefore(by)) {
    what = "shared race: write after read";
    *other = &granule.read;
  }
  // Its own store just before does not become atomic: others may still race with it.
  const bool own_store = !fresh && granule.state == State::kPlain &&
                         granule.write.who == by.thread &&
                         granule.write.tick >= by.barrier_tick;
  if (access == Access::kAtomic && own_store) return what;
  if (both_atomic && !fresh) {
    granule.write.Add(by);
  } else {
    granule.write.Set(by);
  }
  granule.state = access == Access::kAtomic ? State::kAtomic : State::kPlain;
  return what;
}

SharedFault SharedMemory::Note(const void* at, int bytes, Access access,
                               const Toucher& by) {
  const int64_t offset = static_cast<const char*>(at) - begin_;
  const int64_t last = (offset + bytes - 1) >> shift_;
  SharedFault fault;
  for (int64_t i = offset >> shift_; i <= last; ++i) {
    Granule& granule = granules_[static_cast<size_t>(i)];
    const Touch* other = nullptr;
    const char* what = nullptr;
    int16_t who = 0;
    if (access != Access::kWrite) {
      what = NoteRead(granule, access, by, &other);
      who = other->who;
    }
    if (access != Access::kRead) {
      const Touch before_write = granule.write;
      const Touch before_read = granule.read;
      const char* second = NoteWrite(granule, access, by, &other);
      if (what == nullptr && second != nullptr) {
        what = second;
        who = other == &granule.read ? before_read.who : before_write.who;
      }
    }
    if (what != nullptr && fault.what == nullptr) fault = {what, who >= 0 ? who : -1};
  }
  return fault;
}

SharedFault SharedMemory::Depart(char* to, const Toucher& by) {
  const SharedFault fault = Note(to, kCopyBytes, Access::kWrite, by);
  const int64_t first = (to - begin_) >> shift_;
  for (int64_t i = first; i < first + (kCopyBytes >> shift_); ++i) {
    granules_[static_cast<size_t>(i)].state = State::kInFlight;
  }
  std::memset(to, kUnwritten, kCopyBytes);
  return fault;
}

void SharedMemory::Land(char* to, const char* value, const Toucher& by) {
  const int64_t first = (to - begin_) >> shift_;
  for (int64_t i = first; i < first + (kCopyBytes >> shift_); ++i) {
    Granule& granule = granules_[static_cast<size_t>(i)];
    granule.state = State::kPlain;
    granule.write.Set(by);
  }
  std::memcpy(to, value, kCopyBytes);
}

}  // namespace renga::test
