#include "tests/simt/probe_kernels.h"

#include "kernels/cuda/words.h"
#include "tests/simt/simt_ctx.h"

namespace renga::cuda {
namespace {

using test::ProbeArgs;

// ---- What the operations compute. One warp each, but Sum.

template <class Ctx>
void Sum(Ctx& ctx, const ProbeArgs& args) {
  float* sums = ctx.template Shared<float>(0);
  float sum = 0.0f;
  for (int i = ctx.thread(); i < args.n; i += 64) sum += BitsAsFloat(args.in[i]);
  for (int mask = 16; mask > 0; mask /= 2) sum += ctx.ShuffleXor(sum, mask);
  if (ctx.lane() == 0) sums[ctx.warp()] = sum;
  ctx.Barrier();
  if (ctx.thread() == 0) args.out[ctx.block_x()] = FloatAsBits(sums[0] + sums[1]);
}

// out[8][32]: what each lane gets from each kind.
template <class Ctx>
void Shuffles(Ctx& ctx, const ProbeArgs& args) {
  const int lane = ctx.lane();
  const float value = static_cast<float>(lane) + 0.5f;
  uint32_t* out = args.out + lane;
  out[0] = FloatAsBits(ctx.ShuffleXor(value, 5));
  out[32] = static_cast<uint32_t>(ctx.ShuffleXor(int32_t{-lane}, 16));
  out[64] = ctx.ShuffleXor(static_cast<uint32_t>(lane), 31);
  out[96] = FloatAsBits(ctx.Shuffle(value, 7));
  out[128] = static_cast<uint32_t>(ctx.Shuffle(int32_t{-lane}, (lane + 3) % 32));
  out[160] = FloatAsBits(ctx.ShuffleUp(value, 4));
  out[192] = ctx.ShuffleUp(static_cast<uint32_t>(lane), 1);
  out[224] = ctx.Ballot(lane % 3 == 0);
}

// in: 32 rows of 16 bytes. out[2][32][4]: plain, transposed.
template <class Ctx>
void LoadMatrices(Ctx& ctx, const ProbeArgs& args) {
  Vec16* rows = ctx.template Shared<Vec16>(0);
  ctx.SharedStore16(rows + ctx.lane(), ctx.Load16(args.in + 4 * ctx.lane()));
  ctx.WarpSync();
  Vec16 plain;
  Vec16 transposed;
  ctx.LoadMatrix4(plain.word, rows + ctx.lane());
  ctx.LoadMatrix4Trans(transposed.word, rows + ctx.lane());
  ctx.Store16(args.out + 4 * ctx.lane(), plain);
  ctx.Store16(args.out + 128 + 4 * ctx.lane(), transposed);
}

// in[32][4]: a; more[32][2]: b. out[32][4]: c, which begins at n.
template <bool kBfloat, class Ctx>
void Mma(Ctx& ctx, const ProbeArgs& args) {
  const int lane = ctx.lane();
  uint32_t a[4];
  uint32_t b[2];
  float c[4];
  for (int i = 0; i < 4; ++i) a[i] = args.in[4 * lane + i];
  for (int i = 0; i < 2; ++i) b[i] = args.more[2 * lane + i];
  for (int i = 0; i < 4; ++i) c[i] = static_cast<float>(args.n);
  if constexpr (kBfloat) {
    ctx.MmaBf16(c, a, b);
  } else {
    ctx.MmaF16(c, a, b);
  }
  for (int i = 0; i < 4; ++i) args.out[4 * lane + i] = FloatAsBits(c[i]);
}

// out[32][4] = in[32][4] of the first n lanes, by way of a ring of two slots; else zeros.
template <class Ctx>
void CopyRing(Ctx& ctx, const ProbeArgs& args) {
  Vec16* ring = ctx.template Shared<Vec16>(0);
  const int lane = ctx.lane();
  const bool whole = lane < args.n;
  for (int slot = 0; slot < 2; ++slot) {
    const uint32_t* from = slot == 0 ? args.in : args.more;
    ctx.CopyAsync16(ring + 32 * slot + lane, whole ? from + 4 * lane : nullptr, whole);
    ctx.CopyCommit();
  }
  ctx.template CopyWait<1>();
  ctx.Store16(args.out + 4 * lane, ctx.SharedLoad16(ring + lane));
  ctx.template CopyWait<0>();
  ctx.Store16(args.out + 128 + 4 * lane, ctx.SharedLoad16(ring + 32 + lane));
}

// out[0] += in of all threads; out[1] the largest; out[2..3] a sum of 64 bits.
template <class Ctx>
void Atomics(Ctx& ctx, const ProbeArgs& args) {
  const uint32_t value = args.in[64 * ctx.block_x() + ctx.thread()];
  ctx.AtomicAdd(reinterpret_cast<int32_t*>(args.out), static_cast<int32_t>(value));
  ctx.AtomicMax(args.out + 1, value);
  ctx.AtomicAdd(reinterpret_cast<uint64_t*>(args.out + 2), uint64_t{value} << 32);
}

// Bytes side by side from different lanes.
template <class Ctx>
void SingleBytes(Ctx& ctx, const ProbeArgs& args) {
  uint8_t* bytes = ctx.template Shared<uint8_t>(0);
  bytes[ctx.lane()] = static_cast<uint8_t>(ctx.lane());
  ctx.WarpSync();
  args.out[ctx.lane()] = bytes[31 - ctx.lane()];
}

// out[z][y][x] = the block's number.
template <class Ctx>
void Places(Ctx& ctx, const ProbeArgs& args) {
  const int block = (ctx.block_z() * 3 + ctx.block_y()) * 5 + ctx.block_x();
  if (ctx.thread() == 0) args.out[block] = static_cast<uint32_t>(block);
}

// ---- What is counted.

// Lane i reads in[i * n].
template <class Ctx>
void StridedRead(Ctx& ctx, const ProbeArgs& args) {
  const uint32_t value = args.in[ctx.lane() * args.n];
  args.out[ctx.lane()] = value;
}

// Lane i stores the word i * n of shared memory.
template <class Ctx>
void StridedShared(Ctx& ctx, const ProbeArgs& args) {
  ctx.template Shared<uint32_t>(0)[ctx.lane() * args.n] = 1;
}

// Lane i reads the word i / n of shared memory.
template <class Ctx>
void SharedBroadcast(Ctx& ctx, const ProbeArgs& args) {
  uint32_t* words = ctx.template Shared<uint32_t>(0);
  words[ctx.lane()] = 1;
  ctx.WarpSync();
  args.out[ctx.lane()] = words[ctx.lane() / args.n];
}

// Lane i stores the 16 bytes i * n.
template <class Ctx>
void StridedVectors(Ctx& ctx, const ProbeArgs& args) {
  ctx.SharedStore16(ctx.template Shared<Vec16>(0) + ctx.lane() * args.n, Vec16{});
}

// Rows of 16 bytes that lie n apart.
template <class Ctx>
void StridedMatrix(Ctx& ctx, const ProbeArgs& args) {
  Vec16* rows = ctx.template Shared<Vec16>(0);
  Vec16* row = rows + ctx.lane() * args.n;
  ctx.CopyAsync16(row, nullptr, false);
  ctx.CopyCommit();
  ctx.template CopyWait<0>();
  ctx.WarpSync();
  uint32_t r[4];
  ctx.LoadMatrix4(r, row);
}

// Lane i reads i % 4 + 1 times, then all once.
template <class Ctx>
void UnevenReads(Ctx& ctx, const ProbeArgs& args) {
  uint32_t sum = 0;
  for (int i = 0; i <= ctx.lane() % 4; ++i) sum += args.in[32 * i + ctx.lane()];
  args.out[ctx.lane()] = sum;
}

constexpr KernelId kSum{900};
constexpr KernelId kShuffles{901};
constexpr KernelId kLoadMatrices{902};
constexpr KernelId kMmaF16{903};
constexpr KernelId kMmaBf16{904};
constexpr KernelId kCopyRing{905};
constexpr KernelId kAtomics{906};
constexpr KernelId kSingleBytes{907};
constexpr KernelId kPlaces{908};
constexpr KernelId kStridedRead{909};
constexpr KernelId kStridedShared{910};
constexpr KernelId kStridedVectors{911};
constexpr KernelId kStridedMatrix{912};
constexpr KernelId kUnevenReads{913};
constexpr KernelId kSharedBroadcast{914};

}  // namespace
}  // namespace renga::cuda

#define RENGA_PROBE_KERNELS(X)                         \
  X(kSum, ProbeArgs, 64, 1, Sum)                       \
  X(kShuffles, ProbeArgs, 32, 1, Shuffles)             \
  X(kLoadMatrices, ProbeArgs, 32, 1, LoadMatrices)     \
  X(kMmaF16, ProbeArgs, 32, 1, Mma<false>)             \
  X(kMmaBf16, ProbeArgs, 32, 1, Mma<true>)             \
  X(kCopyRing, ProbeArgs, 32, 1, CopyRing)             \
  X(kAtomics, ProbeArgs, 64, 1, Atomics)               \
  X(kSingleBytes, ProbeArgs, 32, 1, SingleBytes)       \
  X(kPlaces, ProbeArgs, 32, 1, Places)                 \
  X(kStridedRead, ProbeArgs, 32, 1, StridedRead)       \
  X(kStridedShared, ProbeArgs, 32, 1, StridedShared)   \
  X(kStridedVectors, ProbeArgs, 32, 1, StridedVectors) \
  X(kStridedMatrix, ProbeArgs, 32, 1, StridedMatrix)   \
  X(kUnevenReads, ProbeArgs, 32, 1, UnevenReads)       \
  X(kSharedBroadcast, ProbeArgs, 32, 1, SharedBroadcast)

RENGA_SIMT_FAMILY(RENGA_PROBE_KERNELS, ProbeKernels)
