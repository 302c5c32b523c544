#include "tests/simt/simt_ctx.h"

#include <cstring>

#include "tests/simt/machine.h"

// The kernel's place, in a method of SimtCtx.
#define RENGA_HERE \
  Site { file, line, __builtin_return_address(0) }

namespace renga::test {
namespace {

SimtMachine& Machine() { return *SimtMachine::Running(); }

uint32_t WaitForLanes(Wait wait, const Site& site, uint32_t value, int argument) {
  SimtThread& self = Machine().current();
  self.value = value;
  self.argument = argument;
  Machine().WaitFor(wait, site);
  return self.result;
}

template <class T>
T Exchanged(Wait wait, const Site& site, T value, int argument) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = WaitForLanes(wait, site, bits, argument);
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

cuda::Vec16 Load(const Site& site, const void* from, Space space) {
  Machine().Touches(site, from, sizeof(cuda::Vec16), Access::kRead, space);
  cuda::Vec16 value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void Store(const Site& site, void* to, const cuda::Vec16& value, Space space) {
  Machine().Touches(site, to, sizeof value, Access::kWrite, space);
  std::memcpy(to, &value, sizeof value);
}

void LoadMatrices(Wait wait, const Site& site, uint32_t* registers, const void* row) {
  SimtThread& self = Machine().current();
  self.registers = registers;
  self.row = static_cast<const char*>(row);
  Machine().WaitFor(wait, site);
}

void Multiply(Wait wait, const Site& site, float* c, const uint32_t* a,
              const uint32_t* b) {
  SimtThread& self = Machine().current();
  self.c = c;
  self.a = a;
  self.b = b;
  Machine().WaitFor(wait, site);
}

template <class T, class Change>
T Atomic(const Site& site, T* at, Change change) {
  Machine().Touches(site, at, sizeof(T), Access::kAtomic, Space::kAny);
  const T old = *at;
  *at = change(old);
  return old;
}

}  // namespace

int SimtCtx::thread() const { return self_->thread; }
int SimtCtx::lane() const { return self_->lane; }
int SimtCtx::warp() const { return self_->warp; }
int SimtCtx::block_x() const { return self_->machine->block()[0]; }
int SimtCtx::block_y() const { return self_->machine->block()[1]; }
int SimtCtx::block_z() const { return self_->machine->block()[2]; }
void* SimtCtx::SharedAt(int byte_offset) const {
  return self_->machine->Shared(byte_offset);
}

void SimtCtx::Barrier(const char* file, int line) {
  Machine().WaitFor(Wait::kBarrier, RENGA_HERE);
}
void SimtCtx::WarpSync(const char* file, int line) {
  Machine().WaitFor(Wait::kWarpSync, RENGA_HERE);
}

float SimtCtx::ShuffleXor(float value, int mask, const char* file, int line) {
  return Exchanged(Wait::kShuffleXor, RENGA_HERE, value, mask);
}
int32_t SimtCtx::ShuffleXor(int32_t value, int mask, const char* file, int line) {
  return Exchanged(Wait::kShuffleXor, RENGA_HERE, value, mask);
}
uint32_t SimtCtx::ShuffleXor(uint32_t value, int mask, const char* file, int line) {
  return Exchanged(Wait::kShuffleXor, RENGA_HERE, value, mask);
}
float SimtCtx::Shuffle(float value, int lane, const char* file, int line) {
  return Exchanged(Wait::kShuffle, RENGA_HERE, value, lane);
}
int32_t SimtCtx::Shuffle(int32_t value, int lane, const char* file, int line) {
  return Exchanged(Wait::kShuffle, RENGA_HERE, value, lane);
}
uint32_t SimtCtx::Shuffle(uint32_t value, int lane, const char* file, int line) {
  return Exchanged(Wait::kShuffle, RENGA_HERE, value, lane);
}
float SimtCtx::ShuffleUp(float value, int delta, const char* file, int line) {
  return Exchanged(Wait::kShuffleUp, RENGA_HERE, value, delta);
}
int32_t SimtCtx::ShuffleUp(int32_t value, int delta, const char* file, int line) {
  return Exchanged(Wait::kShuffleUp, RENGA_HERE, value, delta);
}
uint32_t SimtCtx::ShuffleUp(uint32_t value, int delta, const char* file, int line) {
  return Exchanged(Wait::kShuffleUp, RENGA_HERE, value, delta);
}
uint32_t SimtCtx::Ballot(bool vote, const char* file, int line) {
  return WaitForLanes(Wait::kBallot, RENGA_HERE, vote ? 1 : 0, 0);
}

cuda::Vec16 SimtCtx::Load16(const void* from, const char* file, int line) {
  return Load(RENGA_HERE, from, Space::kGlobal);
}
cuda::Vec16 SimtCtx::LoadStream16(const void* from, const char* file, int line) {
  return Load(RENGA_HERE, from, Space::kGlobal);
}
void SimtCtx::Store16(void* to, cuda::Vec16 value, const char* file, int line) {
  Store(RENGA_HERE, to, value, Space::kGlobal);
}
cuda::Vec16 SimtCtx::SharedLoad16(const void* from, const char* file, int line) {
  return Load(RENGA_HERE, from, Space::kShared);
}
void SimtCtx::SharedStore16(void* to, cuda::Vec16 value, const char* file, int line) {
  Store(RENGA_HERE, to, value, Space::kShared);
}

void SimtCtx::CopyAsync16(void* shared, const void* global, bool whole, const char* file,
                          int line) {
  Machine().CopyAsync(RENGA_HERE, shared, global, whole);
}
void SimtCtx::CopyCommit() { Machine().CopyCommit(); }
void SimtCtx::CopyWaitFor(int pending) { Machine().CopyWait(pending); }

void SimtCtx::LoadMatrix4(uint32_t (&r)[4], const void* row, const char* file, int line) {
  LoadMatrices(Wait::kLoadMatrix, RENGA_HERE, r, row);
}
void SimtCtx::LoadMatrix4Trans(uint32_t (&r)[4], const void* row, const char* file,
                               int line) {
  LoadMatrices(Wait::kLoadMatrixTrans, RENGA_HERE, r, row);
}
void SimtCtx::MmaF16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                     const char* file, int line) {
  Multiply(Wait::kMmaF16, RENGA_HERE, c, a, b);
}
void SimtCtx::MmaBf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                      const char* file, int line) {
  Multiply(Wait::kMmaBf16, RENGA_HERE, c, a, b);
}

int32_t SimtCtx::AtomicAdd(int32_t* at, int32_t value, const char* file, int line) {
  return Atomic(RENGA_HERE, at, [value](int32_t old) {
    return static_cast<int32_t>(static_cast<uint32_t>(old) +
                                static_cast<uint32_t>(value));
  });
}
uint64_t SimtCtx::AtomicAdd(uint64_t* at, uint64_t value, const char* file, int line) {
  return Atomic(RENGA_HERE, at, [value](uint64_t old) { return old + value; });
}
uint32_t SimtCtx::AtomicMax(uint32_t* at, uint32_t value, const char* file, int line) {
  return Atomic(RENGA_HERE, at,
                [value](uint32_t old) { return old > value ? old : value; });
}

}  // namespace renga::test
