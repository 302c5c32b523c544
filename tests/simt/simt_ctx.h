// SimtCtx: the context of kernels/cuda/context.h, for a thread that is a fiber.
//
// Every method is out of line, in a file compiled without hooks. `file` and `line` are
// the kernel's: they are in reports, and lanes of a warp meet where they are equal.

#pragma once

#include <stdint.h>

#include "kernels/cuda/context.h"

#define RENGA_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace renga::test {

class SimtThread;

class SimtCtx {
 public:
  explicit SimtCtx(SimtThread* self) : self_(self) {}
  SimtCtx(const SimtCtx&) = delete;

  int thread() const;
  int lane() const;
  int warp() const;
  int block_x() const;
  int block_y() const;
  int block_z() const;

  template <class T>
  T* Shared(int byte_offset) const {
    return static_cast<T*>(SharedAt(byte_offset));
  }

  void Barrier(RENGA_SITE);
  void WarpSync(RENGA_SITE);
  float ShuffleXor(float value, int mask, RENGA_SITE);
  int32_t ShuffleXor(int32_t value, int mask, RENGA_SITE);
  uint32_t ShuffleXor(uint32_t value, int mask, RENGA_SITE);
  float Shuffle(float value, int lane, RENGA_SITE);
  int32_t Shuffle(int32_t value, int lane, RENGA_SITE);
  uint32_t Shuffle(uint32_t value, int lane, RENGA_SITE);
  float ShuffleUp(float value, int delta, RENGA_SITE);
  int32_t ShuffleUp(int32_t value, int delta, RENGA_SITE);
  uint32_t ShuffleUp(uint32_t value, int delta, RENGA_SITE);
  uint32_t Ballot(bool vote, RENGA_SITE);

  cuda::Vec16 Load16(const void* from, RENGA_SITE);
  cuda::Vec16 LoadStream16(const void* from, RENGA_SITE);
  void Store16(void* to, cuda::Vec16 value, RENGA_SITE);
  cuda::Vec16 SharedLoad16(const void* from, RENGA_SITE);
  void SharedStore16(void* to, cuda::Vec16 value, RENGA_SITE);

  void CopyAsync16(void* shared, const void* global, bool whole, RENGA_SITE);
  void CopyCommit();
  template <int kPending>
  void CopyWait() {
    CopyWaitFor(kPending);
  }

  void LoadMatrix4(uint32_t (&r)[4], const void* row, RENGA_SITE);
  void LoadMatrix4Trans(uint32_t (&r)[4], const void* row, RENGA_SITE);
  void MmaF16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], RENGA_SITE);
  void MmaBf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], RENGA_SITE);

  int32_t AtomicAdd(int32_t* at, int32_t value, RENGA_SITE);
  uint64_t AtomicAdd(uint64_t* at, uint64_t value, RENGA_SITE);
  uint32_t AtomicMax(uint32_t* at, uint32_t value, RENGA_SITE);

 private:
  void* SharedAt(int byte_offset) const;
  void CopyWaitFor(int pending);

  SimtThread* self_;
};

}  // namespace renga::test
