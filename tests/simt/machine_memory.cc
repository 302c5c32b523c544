// SimtMachine: what threads read and write.

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "tests/simt/machine.h"

extern "C" const char __executable_start[];  // The linker's: constants of the program lie
extern "C" const char _end[];                // between them.

namespace renga::test {
namespace {

constexpr int kCopyBytes = 16;

bool Within(const void* at, const char* begin, const char* end) {
  const uintptr_t p = reinterpret_cast<uintptr_t>(at);
  return p >= reinterpret_cast<uintptr_t>(begin) && p < reinterpret_cast<uintptr_t>(end);
}

// Scalars and vectors lie at multiples of their size; the words of a struct, at 4.
bool Misaligned(const void* at, int bytes) {
  const int size = bytes == 1 || bytes == 2 || bytes == 8 || bytes == 16 ? bytes : 4;
  return reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(size) != 0;
}

std::string Verb(Access access) {
  if (access == Access::kAtomic) return "atomic";
  return access == Access::kRead ? "read" : "write";
}

}  // namespace

Toucher SimtMachine::ToucherOf(const SimtThread& thread) const {
  // Outside of fibers it is ldmatrix, by which every lane reads every row.
  const int who = current_ == nullptr ? -1 : thread.thread;
  return {static_cast<int16_t>(who), static_cast<int16_t>(thread.warp),
          warps_[static_cast<size_t>(thread.warp)].tick, barrier_tick_, tick_};
}

bool SimtMachine::InArguments(const void* at) const {
  return Within(at, args_, args_ + kernel_->args_bytes);
}

void SimtMachine::Touches(const Site& site, const void* at, int bytes, Access access,
                          Space space) {
  SimtThread& self = *current_;
  if (!watch_ || self.stack.Holds(at)) return;
  if (access == Access::kRead && InArguments(at)) return;
  Found found = Found::kNowhere;
  if (++self.accesses > options_.most_accesses) {
    Fatal(self, site, "a thread spins", std::to_string(self.accesses) + " accesses");
  } else {
    found = Note(self, site, at, bytes, access, space);
  }
  LeaveIfDead();
  if (options_.counters && found != Found::kConstant) {
    const bool shared = found == Found::kShared;
    self.trace.push_back({site.pc, static_cast<const char*>(at), bytes, access, shared});
  }
}

SimtMachine::Found SimtMachine::Note(SimtThread& thread, const Site& site, const void* at,
                                     int bytes, Access access, Space space) {
  if (Misaligned(at, bytes)) {
    const uintptr_t past = reinterpret_cast<uintptr_t>(at) % kCopyBytes;
    Fatal(thread, site, "misaligned access",
          std::to_string(past) + " past a multiple of 16, " + std::to_string(bytes) +
              " bytes");
    return Found::kNowhere;
  }
  const bool shared = shared_.Near(at);
  if (shared && space == Space::kGlobal) {
    Fatal(thread, site, "shared memory where global memory is meant");
    return Found::kNowhere;
  }
  if (shared) return NoteShared(thread, site, at, bytes, access);
  if (space == Space::kShared) {
    Fatal(thread, site, "not shared memory");
    return Found::kNowhere;
  }
  return NoteGlobal(thread, site, at, bytes, access);
}

SimtMachine::Found SimtMachine::NoteShared(SimtThread& thread, const Site& site,
                                           const void* at, int bytes, Access access) {
  if (!shared_.Holds(at, bytes)) {
    Fatal(thread, site, "access out of bounds of shared memory",
          Verb(access) + " at " +
              std::to_string(static_cast<const char*>(at) - shared_.begin()) + " of " +
              std::to_string(shared_.bytes()));
    return Found::kNowhere;
  }
  if (!options_.checks) return Found::kShared;
  ReportShared(thread, site, shared_.Note(at, bytes, access, ToucherOf(thread)));
  return Found::kShared;
}

void SimtMachine::ReportShared(SimtThread& thread, const Site& site,
                               const SharedFault& fault) {
  if (fault.what == nullptr || reports_.Repeats(fault.what, site)) return;
  Report(
      thread, site, fault.what,
      fault.other_thread < 0 ? "" : "with thread " + std::to_string(fault.other_thread));
}

SimtMachine::Found SimtMachine::NoteGlobal(SimtThread& thread, const Site& site,
                                           const void* at, int bytes, Access access) {
  SimtBuffer* buffer = memory_->Find(at);
  if (buffer == nullptr) return NoteOutside(thread, site, at, access);
  const int64_t offset = static_cast<const char*>(at) - buffer->begin;
  if (!buffer->Holds(at, bytes)) {
    Fatal(thread, site, "global access out of bounds",
          Verb(access) + " of '" + buffer->name + "' at " + std::to_string(offset) +
              " of " + std::to_string(buffer->bytes));
    return Found::kNowhere;
  }
  NoteChunk(*buffer, offset);
  NoteChunk(*buffer, offset + bytes - 1);
  const int64_t last = (offset + bytes - 1) >> SimtBuffer::kGranuleShift;
  for (int64_t i = offset >> SimtBuffer::kGranuleShift; i <= last; ++i) {
    NoteGranule(thread, site, *buffer, buffer->shadow[static_cast<size_t>(i)], access);
  }
  return Found::kGlobal;
}

// Neither shared memory nor a buffer: the arguments and the program's constants may be
// read.
SimtMachine::Found SimtMachine::NoteOutside(SimtThread& thread, const Site& site,
                                            const void* at, Access access) {
  const bool arguments = InArguments(at);
  if (access == Access::kRead && (arguments || Within(at, __executable_start, _end))) {
    return Found::kConstant;
  }
  Fatal(thread, site, arguments ? "write to the arguments" : "wild access", Verb(access));
  return Found::kNowhere;
}

void SimtMachine::NoteChunk(SimtBuffer& buffer, int64_t offset) {
  const int64_t index = offset / SimtBuffer::kChunkBytes;
  uint32_t& launch = buffer.chunk_launch[static_cast<size_t>(index)];
  if (launch == first_stamp_) return;
  launch = first_stamp_;
  chunks_.push_back({&buffer, index});
}

// What is wrong with an access to two bytes, if anything is.
const char* SimtMachine::GranuleFault(const GlobalShadow& shadow, const Toucher& by,
                                      Access access, uint32_t* other) const {
  const uint32_t writer = shadow.write_stamp & ~GlobalShadow::kAtomic;
  const bool both_atomic = access == Access::kAtomic && IsAtomicNow(shadow);
  const bool elsewhere = writer >= first_stamp_ && writer != stamp_ && !both_atomic;
  const bool race = writer == stamp_ && !both_atomic && !shadow.write.OrderedBefore(by);
  *other = writer;
  if (access != Access::kWrite) {
    if (kSimtHooks && writer == GlobalShadow::kNever) {
      return "read of uninitialised global memory";
    }
    if (elsewhere) return "global read of what another block wrote in this launch";
    if (race) return "global race: read after write";
  }
  if (access == Access::kRead) return nullptr;
  if (elsewhere) return "global write over what another block wrote in this launch";
  if (race) return "global race: write after write";
  *other = shadow.read_stamp;
  if (shadow.read_stamp >= first_stamp_ && shadow.read_stamp != stamp_) {
    return "global write of what another block read in this launch";
  }
  if (shadow.read_stamp == stamp_ && !shadow.read.OrderedBefore(by)) {
    return "global race: write after read";
  }
  return nullptr;
}

bool SimtMachine::IsAtomicNow(const GlobalShadow& shadow) const {
  return (shadow.write_stamp & GlobalShadow::kAtomic) != 0 &&
         (shadow.write_stamp & ~GlobalShadow::kAtomic) >= first_stamp_;
}

void SimtMachine::NoteGranule(SimtThread& thread, const Site& site,
                              const SimtBuffer& buffer, GlobalShadow& shadow,
                              Access access) {
  const Toucher by = ToucherOf(thread);
  uint32_t other = 0;
  const char* what = GranuleFault(shadow, by, access, &other);
  if (what != nullptr && options_.checks && !reports_.Repeats(what, site)) {
    std::string detail = "'" + buffer.name + "'";
    if (other > first_stamp_ && other != stamp_) {
      detail += ", block " + std::to_string(other - first_stamp_ - 1);
    }
    Report(thread, site, what, detail);
  }
  if (access == Access::kRead) {
    if (shadow.read_stamp < first_stamp_) {
      shadow.read_stamp = stamp_;
      shadow.read.Set(by);
    } else if (shadow.read_stamp == stamp_) {
      shadow.read.Add(by);
    } else {
      shadow.read_stamp = first_stamp_;
    }
  } else if (access == Access::kWrite) {
    shadow.write_stamp = stamp_;
    shadow.write.Set(by);
  } else {
    NoteAtomic(shadow, by);
  }
}

void SimtMachine::NoteAtomic(GlobalShadow& shadow, const Toucher& by) const {
  const uint32_t writer = shadow.write_stamp & ~GlobalShadow::kAtomic;
  if (IsAtomicNow(shadow)) {
    const bool several = writer != stamp_;
    shadow.write_stamp = (several ? first_stamp_ : stamp_) | GlobalShadow::kAtomic;
    shadow.write.Add(by);
    return;
  }
  // Its own store just before does not become atomic: others may still race with it.
  const bool own_store = writer == stamp_ && shadow.write.who == by.thread &&
                         shadow.write.tick >= by.barrier_tick;
  if (own_store) return;
  shadow.write_stamp = stamp_ | GlobalShadow::kAtomic;
  shadow.write.Set(by);
}

void SimtMachine::CopyAsync(const Site& site, void* shared, const void* global,
                            bool whole) {
  SimtThread& self = *current_;
  SimtThread::Copy copy;
  copy.to = static_cast<char*>(shared);
  copy.site = site;
  if (whole) {
    Touches(site, global, kCopyBytes, Access::kRead, Space::kGlobal);
    std::memcpy(&copy.value, global, kCopyBytes);
  }
  if (watch_) {
    // Bounds and alignment first: the note of the write is Depart's.
    if (!shared_.Near(shared) || Misaligned(shared, kCopyBytes) ||
        !shared_.Holds(shared, kCopyBytes)) {
      Note(self, site, shared, kCopyBytes, Access::kWrite, Space::kShared);
      LeaveIfDead();
    }
    ReportShared(self, site, shared_.Depart(copy.to, ToucherOf(self)));
    if (options_.counters) {
      self.trace.push_back({static_cast<const char*>(site.pc) + 1, copy.to, kCopyBytes,
                            Access::kWrite, true});
    }
  }
  self.copies.push_back(copy);
}

void SimtMachine::CopyCommit() { current_->groups.push_back(current_->copies.size()); }

void SimtMachine::CopyWait(int pending) {
  SimtThread& self = *current_;
  const size_t kept = static_cast<size_t>(pending);
  if (self.groups.size() <= kept) return;
  const size_t done = self.groups.size() - kept;
  const size_t landed = self.groups[done - 1];
  for (size_t i = 0; i < landed; ++i) {
    const SimtThread::Copy& copy = self.copies[i];
    shared_.Land(copy.to, reinterpret_cast<const char*>(&copy.value), ToucherOf(self));
  }
  self.copies.erase(self.copies.begin(),
                    self.copies.begin() + static_cast<int64_t>(landed));
  self.groups.erase(self.groups.begin(),
                    self.groups.begin() + static_cast<int64_t>(done));
  for (size_t& group : self.groups) group -= landed;
}

}  // namespace renga::test
