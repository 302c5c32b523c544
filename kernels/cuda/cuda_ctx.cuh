// CudaCtx: the context of kernels/cuda/context.h on a GPU (sm_80 and later). Empty; every
// method is one or two instructions.

#pragma once

#include <stdint.h>

#include "kernels/cuda/context.h"

namespace renga::cuda {

extern __shared__ __align__(128) unsigned char renga_shared_memory[];

struct CudaCtx {
  RENGA_DEVICE int thread() const { return static_cast<int>(threadIdx.x); }
  RENGA_DEVICE int lane() const { return static_cast<int>(threadIdx.x & 31u); }
  RENGA_DEVICE int warp() const { return static_cast<int>(threadIdx.x >> 5); }
  RENGA_DEVICE int block_x() const { return static_cast<int>(blockIdx.x); }
  RENGA_DEVICE int block_y() const { return static_cast<int>(blockIdx.y); }
  RENGA_DEVICE int block_z() const { return static_cast<int>(blockIdx.z); }

  template <class T>
  RENGA_DEVICE T* Shared(int byte_offset) const {
    return reinterpret_cast<T*>(renga_shared_memory + byte_offset);
  }

  RENGA_DEVICE void Barrier() const { __syncthreads(); }
  RENGA_DEVICE void WarpSync() const { __syncwarp(); }
  template <class T>
  RENGA_DEVICE T ShuffleXor(T value, int mask) const {
    return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
  }
  template <class T>
  RENGA_DEVICE T Shuffle(T value, int lane) const {
    return __shfl_sync(0xFFFFFFFFu, value, lane);
  }
  template <class T>
  RENGA_DEVICE T ShuffleUp(T value, int delta) const {
    return __shfl_up_sync(0xFFFFFFFFu, value, static_cast<unsigned>(delta));
  }
  RENGA_DEVICE uint32_t Ballot(bool vote) const {
    return __ballot_sync(0xFFFFFFFFu, vote);
  }

  RENGA_DEVICE Vec16 Load16(const void* from) const {
    return *static_cast<const Vec16*>(from);
  }
  RENGA_DEVICE Vec16 LoadStream16(const void* from) const {
    Vec16 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(from));
    return v;
  }
  RENGA_DEVICE void Store16(void* to, Vec16 value) const {
    *static_cast<Vec16*>(to) = value;
  }
  RENGA_DEVICE Vec16 SharedLoad16(const void* from) const {
    return *static_cast<const Vec16*>(from);
  }
  RENGA_DEVICE void SharedStore16(void* to, Vec16 value) const {
    *static_cast<Vec16*>(to) = value;
  }

  RENGA_DEVICE static uint32_t SharedAddress(const void* at) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(at));
  }
  RENGA_DEVICE void CopyAsync16(void* shared, const void* global, bool whole) const {
    const uint32_t bytes = whole ? 16u : 0u;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(SharedAddress(shared)), "l"(global), "r"(bytes)
                 : "memory");
  }
  RENGA_DEVICE void CopyCommit() const {
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  template <int kPending>
  RENGA_DEVICE void CopyWait() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
  }

  RENGA_DEVICE void LoadMatrix4(uint32_t (&r)[4], const void* row) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(SharedAddress(row))
                 : "memory");
  }
  RENGA_DEVICE void LoadMatrix4Trans(uint32_t (&r)[4], const void* row) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(SharedAddress(row))
                 : "memory");
  }
  RENGA_DEVICE void MmaF16(float (&c)[4], const uint32_t (&a)[4],
                           const uint32_t (&b)[2]) const {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  RENGA_DEVICE void MmaBf16(float (&c)[4], const uint32_t (&a)[4],
                            const uint32_t (&b)[2]) const {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

  RENGA_DEVICE int32_t AtomicAdd(int32_t* at, int32_t value) const {
    return atomicAdd(at, value);
  }
  RENGA_DEVICE uint64_t AtomicAdd(uint64_t* at, uint64_t value) const {
    return atomicAdd(reinterpret_cast<unsigned long long*>(at),
                     static_cast<unsigned long long>(value));
  }
  RENGA_DEVICE uint32_t AtomicMax(uint32_t* at, uint32_t value) const {
    return atomicMax(at, value);
  }
};

}  // namespace renga::cuda
