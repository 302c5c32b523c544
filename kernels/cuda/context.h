// The context that kernel bodies are templates over, and what both sides share.
//
// A body is `template <..., class Ctx> RENGA_DEVICE void Name(Ctx& ctx, const NameArgs&
// args)`. Everything with a meaning for a warp or a block goes through ctx; scalar loads,
// stores and arithmetic are plain C++ (`out[i] = sum`), which the emulator sees through
// compiler hooks. CudaCtx (cuda_ctx.cuh) is an empty struct of inline functions; SimtCtx
// (tests/simt) runs each thread as a fiber. Both have:
//
//   int thread(), lane(), warp()           in the block; blocks have one dimension
//   int block_x(), block_y(), block_z()
//   T* Shared<T>(int byte_offset)          dynamic shared memory, NaN at the start
//   void Barrier()                         the whole block, no thread gone
//   void WarpSync()                        the whole warp; orders its memory accesses
//   T ShuffleXor(T v, int mask), T Shuffle(T v, int lane), T ShuffleUp(T v, int delta)
//                                          T = float, int32_t, uint32_t; the whole warp;
//                                          no fences. ShuffleUp: lanes below delta keep v
//   uint32_t Ballot(bool)
//   Vec16 Load16(const void*)              global, 128 bits, aligned to 16 bytes
//   Vec16 LoadStream16(const void*)        the same for what is read once (weights)
//   void Store16(void*, Vec16)
//   Vec16 SharedLoad16(const void*), void SharedStore16(void*, Vec16)
//   void CopyAsync16(void* shared, const void* global, bool whole)
//                                          cp.async; 16 zero bytes if not `whole` (the
//                                          address is then not read)
//   void CopyCommit(), CopyWait<N>()       until all but the last N groups of this thread
//                                          are there, for this thread alone: others need
//                                          a WarpSync or Barrier after it
//   void LoadMatrix4(uint32_t (&r)[4], const void* row)       ldmatrix.x4
//   void LoadMatrix4Trans(uint32_t (&r)[4], const void* row)  ldmatrix.x4.trans
//                                          lane 8 i + j gives the address of row j (16
//                                          bytes, aligned) of matrix i
//   void MmaF16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
//   void MmaBf16(...)                      c += a . b, mma.m16n8k16, f32 accumulation
//   int32_t AtomicAdd(int32_t*, int32_t), uint64_t AtomicAdd(uint64_t*, uint64_t),
//   uint32_t AtomicMax(uint32_t*, uint32_t)   shared or global; the old value
//
// mma.m16n8k16, lane = 4 g + t, pairs low half first:
//   A [16][16]: a0 (g, 2t..2t+1)  a1 (g+8, 2t..)  a2 (g, 2t+8..)  a3 (g+8, 2t+8..)
//   B [16][8]:  b0 (k = 2t..2t+1, n = g)  b1 (k = 2t+8..2t+9, n = g)
//   C [16][8]:  c0, c1 (g, 2t..2t+1)  c2, c3 (g+8, 2t..2t+1)
//   ldmatrix: register i = matrix i, (row g, columns 2t..2t+1); trans: (rows 2t..2t+1,
//   column g)
//
// Rules: no thread leaves above a barrier (a whole block may: `if (block_x() >= n)
// return;` on values that all its threads share). A loop over threads steps by a constant
// of the template, not by a run-time number. Offsets are int64_t. fma is written out
// (Fma): nvcc runs with --fmad=false.

#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
#define RENGA_DEVICE __device__ __forceinline__
#define RENGA_HOST_DEVICE __host__ __device__ __forceinline__
#define RENGA_UNROLL _Pragma("unroll")
#define RENGA_NO_UNROLL _Pragma("unroll 1")
#else
#define RENGA_DEVICE inline
#define RENGA_HOST_DEVICE inline
#define RENGA_UNROLL
#define RENGA_NO_UNROLL
#endif

namespace renga::cuda {

constexpr int kWarp = 32;

struct alignas(16) Vec16 {
  uint32_t word[4];
};

}  // namespace renga::cuda
