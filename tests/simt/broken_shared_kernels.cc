// Mistakes in shared memory and with cp.async. See broken_kernels.h.

#include "tests/simt/broken_kernels.h"
#include "tests/simt/simt_ctx.h"

namespace renga::test {
namespace {

using cuda::Vec16;

// ---- Shared memory.

template <bool kBroken>
void SharedOutOfBounds(SimtCtx& ctx, const ProbeArgs&) {
  float* shared = ctx.Shared<float>(0);
  shared[ctx.thread() + (kBroken ? 961 : 960)] = 1.0f;  // FOUND
}

template <bool kBroken>
void SharedBelowStart(SimtCtx& ctx, const ProbeArgs&) {
  float* shared = ctx.Shared<float>(0);
  shared[ctx.thread() - (kBroken ? 1 : 0)] = 1.0f;  // FOUND
}

template <bool kBroken>
void SharedUninitialised(SimtCtx& ctx, const ProbeArgs& args) {
  float* shared = ctx.Shared<float>(0);
  if (!kBroken || ctx.thread() != 40) shared[ctx.thread()] = 1.0f;
  ctx.Barrier();
  args.out[64 * ctx.block_x() + ctx.thread()] =
      static_cast<uint32_t>(shared[ctx.thread()]);  // FOUND
}

template <bool kBroken>
void SharedReadAfterWrite(SimtCtx& ctx, const ProbeArgs& args) {
  uint32_t* shared = ctx.Shared<uint32_t>(0);
  shared[ctx.thread()] = 1;
  if (!kBroken) ctx.Barrier();
  args.out[64 * ctx.block_x() + ctx.thread()] = shared[ctx.thread() ^ 63];  // FOUND
  if (kBroken) ctx.Barrier();
}

template <bool kBroken>
void SharedWriteAfterRead(SimtCtx& ctx, const ProbeArgs& args) {
  uint32_t* shared = ctx.Shared<uint32_t>(0);
  shared[ctx.thread()] = 1;
  ctx.Barrier();
  const uint32_t value = shared[ctx.thread() ^ 63];
  if (!kBroken) ctx.Barrier();
  shared[ctx.thread()] = value + 1;  // FOUND
  ctx.Barrier();
  args.out[64 * ctx.block_x() + ctx.thread()] = shared[ctx.thread()];
}

template <bool kBroken>
void SharedWriteAfterWrite(SimtCtx& ctx, const ProbeArgs&) {
  uint32_t* shared = ctx.Shared<uint32_t>(0);
  shared[kBroken ? ctx.thread() / 2 : ctx.thread()] = 7;  // FOUND
}

template <bool kBroken>
void ShuffleIsNoFence(SimtCtx& ctx, const ProbeArgs& args) {
  uint32_t* shared = ctx.Shared<uint32_t>(0);
  shared[ctx.thread()] = 1;
  if (kBroken) {
    ctx.ShuffleXor(1.0f, 1);
  } else {
    ctx.WarpSync();
  }
  args.out[64 * ctx.block_x() + ctx.thread()] = shared[ctx.thread() ^ 1];  // FOUND
}

template <bool kBroken>
void WarpSyncForBarrier(SimtCtx& ctx, const ProbeArgs& args) {
  uint32_t* shared = ctx.Shared<uint32_t>(0);
  shared[ctx.thread()] = 1;
  if (kBroken) {
    ctx.WarpSync();
  } else {
    ctx.Barrier();
  }
  args.out[64 * ctx.block_x() + ctx.thread()] =
      shared[(ctx.thread() + 32) % 64];  // FOUND
}

template <bool kBroken>
void VectorRace(SimtCtx& ctx, const ProbeArgs&) {
  Vec16* shared = ctx.Shared<Vec16>(0);
  ctx.SharedStore16(shared + ctx.thread(), Vec16{});
  if (!kBroken) ctx.Barrier();
  ctx.SharedLoad16(shared + (ctx.thread() ^ 33));  // FOUND
}

template <bool kBroken>
void MatrixRace(SimtCtx& ctx, const ProbeArgs&) {
  Vec16* shared = ctx.Shared<Vec16>(0);
  ctx.SharedStore16(shared + ctx.thread(), Vec16{});
  if (!kBroken) ctx.WarpSync();
  uint32_t r[4];
  ctx.LoadMatrix4(r, shared + ctx.thread());  // FOUND
}

template <bool kBroken>
void MatrixOutOfBounds(SimtCtx& ctx, const ProbeArgs&) {
  Vec16* shared = ctx.Shared<Vec16>(0);
  for (int i = ctx.thread(); i < 256; i += 64) ctx.SharedStore16(shared + i, Vec16{});
  ctx.Barrier();
  uint32_t r[4];
  ctx.LoadMatrix4Trans(r, shared + ctx.thread() + (kBroken ? 193 : 192));  // FOUND
}

template <bool kBroken>
void AtomicBesidePlain(SimtCtx& ctx, const ProbeArgs& args) {
  int32_t* count = ctx.Shared<int32_t>(0);
  if (ctx.thread() == 0) *count = 0;
  ctx.Barrier();
  ctx.AtomicAdd(count, 1);
  if (!kBroken) ctx.Barrier();
  args.out[64 * ctx.block_x() + ctx.thread()] = static_cast<uint32_t>(*count);  // FOUND
}

template <bool kBroken>
void AtomicOnFreshStore(SimtCtx& ctx, const ProbeArgs&) {
  int32_t* count = ctx.Shared<int32_t>(0);
  if (ctx.thread() == 0) *count = 0;
  if (!kBroken) ctx.Barrier();
  ctx.AtomicAdd(count, 1);  // FOUND
}

template <bool kBroken>
void AtomicOnNothing(SimtCtx& ctx, const ProbeArgs&) {
  uint32_t* most = ctx.Shared<uint32_t>(0);
  if (!kBroken && ctx.thread() == 0) ctx.SharedStore16(most, Vec16{});
  ctx.Barrier();
  ctx.AtomicMax(most, 1u);  // FOUND
}

template <bool kBroken>
void MisalignedMatrix(SimtCtx& ctx, const ProbeArgs&) {
  Vec16* shared = ctx.Shared<Vec16>(0);
  ctx.SharedStore16(shared + ctx.thread(), Vec16{});
  ctx.SharedStore16(shared + 64 + ctx.thread(), Vec16{});
  ctx.Barrier();
  uint32_t r[4];
  ctx.LoadMatrix4(r, ctx.Shared<char>(kBroken ? 8 : 16) + 16 * ctx.thread());  // FOUND
}

template <bool kBroken>
void SharedForGlobal(SimtCtx& ctx, const ProbeArgs& args) {
  Vec16* shared = ctx.Shared<Vec16>(0);
  ctx.SharedStore16(shared + ctx.thread(), Vec16{});
  const void* from = args.in;
  ctx.Load16(kBroken ? shared + ctx.thread() : from);  // FOUND
}

template <bool kBroken>
void GlobalForShared(SimtCtx& ctx, const ProbeArgs& args) {
  Vec16* shared = ctx.Shared<Vec16>(0);
  ctx.SharedStore16(shared + ctx.thread(), Vec16{});
  const void* from = args.in;
  ctx.SharedLoad16(kBroken ? from : shared + ctx.thread());  // FOUND
}

// ---- cp.async.

template <bool kBroken>
void CopyNotAwaited(SimtCtx& ctx, const ProbeArgs& args) {
  Vec16* shared = ctx.Shared<Vec16>(0);
  ctx.CopyAsync16(shared + ctx.thread(), args.in + 4 * ctx.lane(), true);
  ctx.CopyCommit();
  if (!kBroken) ctx.CopyWait<0>();
  ctx.SharedLoad16(shared + ctx.thread());  // FOUND
  ctx.CopyWait<0>();
}

template <bool kBroken>
void CopyWrongGroup(SimtCtx& ctx, const ProbeArgs& args) {
  Vec16* shared = ctx.Shared<Vec16>(0);
  for (int i = 0; i < 2; ++i) {
    ctx.CopyAsync16(shared + 64 * i + ctx.thread(), args.in + 4 * ctx.lane(), true);
    ctx.CopyCommit();
  }
  ctx.CopyWait<1>();
  ctx.SharedLoad16(shared + (kBroken ? 64 : 0) + ctx.thread());  // FOUND
  ctx.CopyWait<0>();
}

template <bool kBroken>
void CopyAwaitedByAnother(SimtCtx& ctx, const ProbeArgs& args) {
  Vec16* shared = ctx.Shared<Vec16>(0);
  ctx.CopyAsync16(shared + ctx.thread(), args.in + 4 * ctx.lane(), true);
  ctx.CopyCommit();
  ctx.CopyWait<0>();
  if (!kBroken) ctx.WarpSync();
  ctx.SharedLoad16(shared + (ctx.thread() ^ 1));  // FOUND
}

template <bool kBroken>
void CopyAtExit(SimtCtx& ctx, const ProbeArgs& args) {
  Vec16* shared = ctx.Shared<Vec16>(0);
  ctx.CopyAsync16(shared + ctx.thread(), args.in, ctx.lane() == 0);  // FOUND
  ctx.CopyCommit();
  if (!kBroken) ctx.CopyWait<0>();
}

template <bool kBroken>
void CopyNotCommitted(SimtCtx& ctx, const ProbeArgs& args) {
  Vec16* shared = ctx.Shared<Vec16>(0);
  ctx.CopyAsync16(shared + ctx.thread(), args.in, true);
  if (!kBroken) ctx.CopyCommit();
  ctx.CopyWait<0>();
  ctx.SharedLoad16(shared + ctx.thread());  // FOUND
  ctx.CopyCommit();
  ctx.CopyWait<0>();
}

template <bool kBroken>
void SlotRefilledTooEarly(SimtCtx& ctx, const ProbeArgs& args) {
  Vec16* shared = ctx.Shared<Vec16>(0);
  for (int i = 0; i < 2; ++i) {
    ctx.CopyAsync16(shared + ctx.thread(), args.in + 4 * ctx.lane(), true);  // FOUND
    ctx.CopyCommit();
    ctx.CopyWait<0>();
    ctx.WarpSync();
    ctx.SharedLoad16(shared + (ctx.thread() ^ 1));
    if (!kBroken) ctx.WarpSync();
  }
}

template <bool kBroken>
void WriteUnderCopy(SimtCtx& ctx, const ProbeArgs& args) {
  Vec16* shared = ctx.Shared<Vec16>(0);
  ctx.CopyAsync16(shared + ctx.thread(), args.in, true);
  ctx.CopyCommit();
  ctx.SharedStore16(shared + ctx.thread() + (kBroken ? 0 : 64), Vec16{});  // FOUND
  ctx.CopyWait<0>();
}

constexpr char kOutside[] = "access out of bounds of shared memory";
constexpr char kUnwritten[] = "read of uninitialised shared memory";
constexpr char kReadAfterWrite[] = "shared race: read after write";
constexpr char kWriteAfterRead[] = "shared race: write after read";
constexpr char kInFlight[] = "read of shared memory with a cp.async in flight (no wait)";

const BrokenKernel kTable[] = {
    RENGA_BROKEN(SharedOutOfBounds, kOutside, "write at 4096 of 4096", true),
    RENGA_BROKEN(SharedBelowStart, kOutside, "write at -4 of 4096", true),
    RENGA_BROKEN(SharedUninitialised, kUnwritten, "", true),
    RENGA_BROKEN(SharedReadAfterWrite, kReadAfterWrite, "with thread", true),
    RENGA_BROKEN(SharedWriteAfterRead, kWriteAfterRead, "with thread", true),
    RENGA_BROKEN(SharedWriteAfterWrite, "shared race: write after write", "with thread 0",
                 true),
    RENGA_BROKEN(ShuffleIsNoFence, kReadAfterWrite, "with thread 1", true),
    RENGA_BROKEN(WarpSyncForBarrier, kReadAfterWrite, "with thread", true),
    RENGA_BROKEN(VectorRace, kReadAfterWrite, "with thread", false),
    RENGA_BROKEN(MatrixRace, kReadAfterWrite, "with thread", false),
    RENGA_BROKEN(MatrixOutOfBounds, kOutside, "read at 4096 of 4096", false),
    RENGA_BROKEN(AtomicBesidePlain, kReadAfterWrite, "", true),
    RENGA_BROKEN(AtomicOnFreshStore, kReadAfterWrite, "with thread 0", true),
    RENGA_BROKEN(AtomicOnNothing, kUnwritten, "", true),
    RENGA_BROKEN(CopyNotAwaited, kInFlight, "", false),
    RENGA_BROKEN(CopyWrongGroup, kInFlight, "", false),
    RENGA_BROKEN(CopyAwaitedByAnother, kReadAfterWrite, "with thread", false),
    RENGA_BROKEN(CopyAtExit, "cp.async in flight at exit (no wait)", "", false),
    RENGA_BROKEN(CopyNotCommitted, kInFlight, "", false),
    RENGA_BROKEN(SlotRefilledTooEarly, kWriteAfterRead, "with thread", false),
    RENGA_BROKEN(WriteUnderCopy,
                 "write of shared memory with a cp.async in flight (no wait)", "", false),
    RENGA_BROKEN(MisalignedMatrix, "misaligned access", "8 past a multiple of 16", false),
    RENGA_BROKEN(SharedForGlobal, "shared memory where global memory is meant", "",
                 false),
    RENGA_BROKEN(GlobalForShared, "not shared memory", "", false),
};

}  // namespace

BrokenKernels BrokenSharedKernels() {
  return {kTable, static_cast<int32_t>(sizeof(kTable) / sizeof(kTable[0]))};
}

}  // namespace renga::test
