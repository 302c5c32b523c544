// Mistakes with addresses and in global memory. See broken_kernels.h.

#include "tests/simt/broken_kernels.h"
#include "tests/simt/simt_ctx.h"

namespace renga::test {
namespace {

using cuda::Vec16;

// ---- Addresses.

template <bool kBroken>
void MisalignedVector(SimtCtx& ctx, const ProbeArgs& args) {
  ctx.Load16(args.in + (kBroken ? ctx.lane() : 4 * ctx.lane()));  // FOUND
}

template <bool kBroken>
void MisalignedScalar(SimtCtx& ctx, const ProbeArgs& args) {
  const char* bytes = reinterpret_cast<const char*>(args.in) + (kBroken ? 2 : 4);
  const uint32_t value = *reinterpret_cast<const uint32_t*>(bytes);  // FOUND
  args.out[64 * ctx.block_x() + ctx.thread()] = value;
}

template <bool kBroken>
void GlobalOutOfBounds(SimtCtx& ctx, const ProbeArgs& args) {
  args.out[64 * ctx.block_x() + ctx.thread()] =
      args.in[ctx.thread() + (kBroken ? 193 : 192)];  // FOUND
}

template <bool kBroken>
void GlobalBelowStart(SimtCtx& ctx, const ProbeArgs& args) {
  ctx.Load16(args.in + 4 * (ctx.lane() - (kBroken ? 1 : 0)));  // FOUND
}

template <bool kBroken>
void StoreOutOfBounds(SimtCtx& ctx, const ProbeArgs& args) {
  const int64_t at = 4 * (ctx.thread() + (kBroken ? 1 : 0));
  if (ctx.block_x() == 0) ctx.Store16(args.out + at, Vec16{});  // FOUND
}

template <bool kBroken>
void WildRead(SimtCtx& ctx, const ProbeArgs& args) {
  const uint32_t* from = kBroken ? reinterpret_cast<const uint32_t*>(4096) : args.in;
  ctx.LoadStream16(from + 4 * ctx.lane());  // FOUND
}

template <bool kBroken>
void AnothersStack(SimtCtx& ctx, const ProbeArgs& args) {
  uint32_t own[2] = {1, 2};
  uint32_t** shared = ctx.Shared<uint32_t*>(0);
  shared[ctx.thread()] = own;
  ctx.Barrier();
  const uint32_t* theirs = shared[kBroken ? ctx.thread() ^ 1 : ctx.thread()];
  args.out[64 * ctx.block_x() + ctx.thread()] = theirs[args.n % 2];  // FOUND
  ctx.Barrier();
}

template <bool kBroken>
void WriteToArguments(SimtCtx& ctx, const ProbeArgs& args) {
  if (kBroken && ctx.thread() == 0) {
    const_cast<ProbeArgs&>(args).n = 1;  // FOUND
  }
}

// ---- Global memory.

template <bool kBroken>
void GlobalUninitialised(SimtCtx& ctx, const ProbeArgs& args) {
  ctx.Load16((kBroken ? args.out : args.in) + 4 * ctx.lane());  // FOUND
}

template <bool kBroken>
void TwoBlocksWriteOne(SimtCtx& ctx, const ProbeArgs& args) {
  const int64_t at = ctx.thread() + (kBroken ? 63 : 64) * ctx.block_x();
  args.out[at] = 1;  // FOUND
}

template <bool kBroken>
void TwoBlocksStoreOne(SimtCtx& ctx, const ProbeArgs& args) {
  const int64_t at = 4 * (ctx.lane() + (kBroken ? 31 : 32) * ctx.block_x());
  if (ctx.warp() == 0) ctx.Store16(args.out + at, Vec16{});  // FOUND
}

template <bool kBroken>
void ReadsAnotherBlocksOutput(SimtCtx& ctx, const ProbeArgs& args) {
  if (ctx.warp() != 0) return;
  if (ctx.block_x() == 0) ctx.Store16(args.out + 4 * ctx.lane(), Vec16{});
  if (ctx.block_x() == 1) {
    ctx.Load16((kBroken ? args.out : args.in) + 4 * ctx.lane());  // FOUND
  }
}

template <bool kBroken>
void WritesAnotherBlocksInput(SimtCtx& ctx, const ProbeArgs& args) {
  if (ctx.warp() != 0) return;
  uint32_t* in = const_cast<uint32_t*>(args.in);
  if (ctx.block_x() == 0) ctx.Load16(in + 4 * ctx.lane());
  if (ctx.block_x() == 1) {
    ctx.Store16((kBroken ? in : args.out) + 4 * ctx.lane(), Vec16{});  // FOUND
  }
}

template <bool kBroken>
void GlobalRaceInBlock(SimtCtx& ctx, const ProbeArgs& args) {
  uint32_t* out = args.out + 64 * ctx.block_x();
  out[ctx.thread()] = 1;
  if (!kBroken) ctx.Barrier();
  const uint32_t value = out[ctx.thread() ^ 32];  // FOUND
  ctx.Barrier();
  out[ctx.thread()] = value;
}

template <bool kBroken>
void GlobalOverwriteInBlock(SimtCtx& ctx, const ProbeArgs& args) {
  uint32_t* out = args.out + 64 * ctx.block_x();
  out[kBroken ? ctx.lane() : ctx.thread()] = 1;  // FOUND
}

template <bool kBroken>
void InPlaceRace(SimtCtx& ctx, const ProbeArgs& args) {
  uint32_t* in = const_cast<uint32_t*>(args.in) + 64 * ctx.block_x();
  const uint32_t value = in[ctx.thread() ^ 32];
  if (!kBroken) ctx.Barrier();
  in[ctx.thread()] = value;  // FOUND
}

template <bool kBroken>
void CountedAndStored(SimtCtx& ctx, const ProbeArgs& args) {
  int32_t* count = reinterpret_cast<int32_t*>(const_cast<uint32_t*>(args.in));
  if (kBroken && ctx.block_x() == 0 && ctx.warp() == 0) {
    ctx.Store16(count + 4 * ctx.lane(), Vec16{});
  }
  ctx.AtomicAdd(count, 1);  // FOUND
}

constexpr char kOutside[] = "global access out of bounds";
constexpr char kWrittenElsewhere[] =
    "global write over what another block wrote in this launch";

const BrokenKernel kTable[] = {
    RENGA_BROKEN(MisalignedVector, "misaligned access", "16 bytes", false),
    RENGA_BROKEN(MisalignedScalar, "misaligned access", "4 bytes", true),
    RENGA_BROKEN(GlobalOutOfBounds, kOutside, "read of 'in' at 1024 of 1024", true),
    RENGA_BROKEN(GlobalBelowStart, kOutside, "read of 'in' at -16 of 1024", false),
    RENGA_BROKEN(StoreOutOfBounds, kOutside, "write of 'out' at 1024 of 1024", false),
    RENGA_BROKEN(WildRead, "wild access", "read", false),
    RENGA_BROKEN(AnothersStack, "wild access", "read", true),
    RENGA_BROKEN(WriteToArguments, "write to the arguments", "", true),
    RENGA_BROKEN(GlobalUninitialised, "read of uninitialised global memory", "'out'",
                 true),
    RENGA_BROKEN(TwoBlocksWriteOne, kWrittenElsewhere, "'out', block 0", true),
    RENGA_BROKEN(TwoBlocksStoreOne, kWrittenElsewhere, "'out', block 0", false),
    RENGA_BROKEN(ReadsAnotherBlocksOutput,
                 "global read of what another block wrote in this launch",
                 "'out', block 0", false),
    RENGA_BROKEN(WritesAnotherBlocksInput,
                 "global write of what another block read in this launch",
                 "'in', block 0", false),
    RENGA_BROKEN(GlobalRaceInBlock, "global race: read after write", "'out'", true),
    RENGA_BROKEN(GlobalOverwriteInBlock, "global race: write after write", "'out'", true),
    RENGA_BROKEN(InPlaceRace, "global race: write after read", "'in'", true),
    RENGA_BROKEN(CountedAndStored, "global race: read after write", "'in'", false),
};

}  // namespace

BrokenKernels BrokenGlobalKernels() {
  return {kTable, static_cast<int32_t>(sizeof(kTable) / sizeof(kTable[0]))};
}

}  // namespace renga::test
