// Mistakes in control flow: lanes that others wait for, and threads that never end. See
// broken_kernels.h.

#include "tests/simt/broken_kernels.h"
#include "tests/simt/simt_ctx.h"

namespace renga::test {
namespace {

// ---- Divergence.

template <bool kBroken>
void ExitAboveBarrier(SimtCtx& ctx, const ProbeArgs&) {
  if (kBroken && ctx.thread() == 63) return;
  ctx.Barrier();  // FOUND
}

template <bool kBroken>
void BarrierInBranch(SimtCtx& ctx, const ProbeArgs&) {
  if (kBroken && ctx.warp() == 1) return;
  ctx.WarpSync();
  ctx.Barrier();  // FOUND
}

template <bool kBroken>
void TwoBarriers(SimtCtx& ctx, const ProbeArgs&) {
  if (!kBroken || ctx.warp() == 0) {
    ctx.Barrier();  // FOUND
  } else {
    ctx.Barrier();
  }
}

template <bool kBroken>
void ShuffleInBranch(SimtCtx& ctx, const ProbeArgs&) {
  if (!kBroken || ctx.lane() < 8) {
    ctx.ShuffleXor(1.0f, 1);  // FOUND
  }
  ctx.Barrier();
}

template <bool kBroken>
void ShuffleAfterExit(SimtCtx& ctx, const ProbeArgs&) {
  if (kBroken && ctx.lane() >= 16) return;
  ctx.Shuffle(int32_t{1}, 20);  // FOUND
}

template <bool kBroken>
void ShuffleFromNowhere(SimtCtx& ctx, const ProbeArgs&) {
  ctx.Shuffle(int32_t{1}, kBroken ? 32 : 31);  // FOUND
}

template <bool kBroken>
void BallotInBranch(SimtCtx& ctx, const ProbeArgs& args) {
  if (kBroken && ctx.lane() == args.n % 32) {
    ctx.Ballot(true);
  } else {
    ctx.Ballot(true);  // FOUND
  }
}

template <bool kBroken>
void ShuffleInUnevenLoop(SimtCtx& ctx, const ProbeArgs&) {
  const int rounds = kBroken ? 1 + ctx.lane() % 2 : 2;
  for (int i = 0; i < rounds; ++i) {
    ctx.ShuffleXor(1.0f, 16);  // FOUND
  }
}

template <bool kBroken>
void MmaInBranch(SimtCtx& ctx, const ProbeArgs&) {
  float c[4] = {};
  const uint32_t a[4] = {};
  const uint32_t b[2] = {};
  if (!kBroken || ctx.lane() != 5) {
    ctx.MmaF16(c, a, b);  // FOUND
  }
}

// ---- Never done.

template <bool kBroken>
void Spins(SimtCtx&, const ProbeArgs& args) {
  const volatile uint32_t* flag = args.in + 1;
  while (*flag == (kBroken ? 1u : 0u)) {  // FOUND
  }
}

template <bool kBroken>
void EndlessBarriers(SimtCtx& ctx, const ProbeArgs& args) {
  for (int i = 0; kBroken || i < args.n; ++i) {
    ctx.Barrier();  // FOUND
  }
}

constexpr char kLost[] = "an operation of the warp waits for lanes that never come";

const BrokenKernel kTable[] = {
    RENGA_BROKEN(ExitAboveBarrier, "Barrier reached by part of the block",
                 "63 wait, 1 have exited", false),
    RENGA_BROKEN(BarrierInBranch, "Barrier reached by part of the block",
                 "32 wait, 32 have exited", false),
    RENGA_BROKEN(TwoBarriers, "threads of one block wait at different Barriers",
                 "other: ", false),
    RENGA_BROKEN(ShuffleInBranch, kLost, "elsewhere ffffff00 at Barrier ", false),
    RENGA_BROKEN(ShuffleAfterExit, kLost, "Shuffle: exited ffff0000", false),
    RENGA_BROKEN(ShuffleFromNowhere, "shuffle from a lane that does not exist", "32",
                 false),
    RENGA_BROKEN(BallotInBranch, kLost, "Ballot: exited 00000000", false),
    RENGA_BROKEN(ShuffleInUnevenLoop, kLost, "ShuffleXor: exited 55555555", false),
    RENGA_BROKEN(MmaInBranch, kLost, "MmaF16: exited 00000020", false),
    RENGA_BROKEN(Spins, "a thread spins", "accesses", true),
    RENGA_BROKEN(EndlessBarriers, "the launch does not end", "steps", false),
};

}  // namespace

BrokenKernels BrokenDivergenceKernels() {
  return {kTable, static_cast<int32_t>(sizeof(kTable) / sizeof(kTable[0]))};
}

}  // namespace renga::test
