#include "bench/kernels/roofs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>

#include "backend/thread_pool.h"
#include "base/aligned_buffer.h"

#define RENGA_ISA roofs
#include "kernels/cpu/tiles_amx-inl.h"

namespace renga {
namespace {

constexpr int64_t kRounds = 200000;  // Of one piece of work.
constexpr int kTries = 20;           // The best counts.

// kRounds times one instruction on each of 12 sums, which hides its latency, from zero: a
// denormal would be slow. Assembly, as this file is compiled for any CPU: the CPU must
// have the instruction.
#define RENGA_TWELVE_SUMS(instruction, registers)                                     \
  int64_t rounds = kRounds;                                                           \
  __asm__ volatile(                                                                   \
      ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13\n"                                      \
      "vpxor %%xmm\\i, %%xmm\\i, %%xmm\\i\n"                                          \
      ".endr\n"                                                                       \
      "1:\n"                                                                          \
      ".irp i,0,1,2,3,4,5,6,7,8,9,10,11\n" instruction " %%" registers                \
      "12, %%" registers "13, %%" registers                                           \
      "\\i\n"                                                                         \
      ".endr\n"                                                                       \
      "dec %0\n"                                                                      \
      "jnz 1b\n"                                                                      \
      "vzeroupper"                                                                    \
      : "+r"(rounds)                                                                  \
      :                                                                               \
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
        "xmm9", "xmm10", "xmm11", "xmm12", "xmm13")

void Dots512() { RENGA_TWELVE_SUMS("vpdpbusd", "zmm"); }
void Dots256() { RENGA_TWELVE_SUMS("vpmaddubsw", "ymm"); }
void Floats512() { RENGA_TWELVE_SUMS("vfmadd231ps", "zmm"); }
void Floats256() { RENGA_TWELVE_SUMS("vfmadd231ps", "ymm"); }

// 16 rows by 16 weight rows by 64 k, on four sums.
void DotsTiles() {
  alignas(64) roofs::TileConfig config;
  for (int tile = 0; tile < 6; ++tile) {
    config.rows[tile] = 16;
    config.row_bytes[tile] = 64;
  }
  roofs::AmxTiles tiles(config);
  tiles.Zero<4>();
  tiles.Zero<5>();
  for (int64_t i = 0; i < kRounds; ++i) {
    tiles.Multiply<0, 4, 5>();
    tiles.Multiply<1, 4, 5>();
    tiles.Multiply<2, 4, 5>();
    tiles.Multiply<3, 4, 5>();
  }
}

// Seconds of the fastest of several times that each thread does `work`.
template <class Work>
double BestSeconds(int threads, Work&& work) {
  using Clock = std::chrono::steady_clock;
  ThreadPool pool(threads);
  double best = 1e9;
  for (int i = 0; i < kTries; ++i) {
    const Clock::time_point start = Clock::now();
    pool.Run(threads, work);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

// Of `macs` multiply-adds in each of the kRounds rounds of `work`.
double Gmacs(int threads, double macs, void (*work)()) {
  const double seconds = BestSeconds(threads, [work](int64_t, int) { work(); });
  return macs * kRounds * threads / seconds / 1e9;
}

uint64_t Sum(std::span<const uint64_t> words) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= words.size(); i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

}  // namespace

double PeakInt8Gmacs(const std::string& isa, int threads) {
  if (isa == "amx") return Gmacs(threads, 4 * 16 * 16 * 64, DotsTiles);
  if (isa == "avx512") return Gmacs(threads, 12 * 64, Dots512);
  if (isa == "avx2") return Gmacs(threads, 12 * 32, Dots256);
  return 0.0;
}

double PeakFloatGmacs(const std::string& isa, int threads) {
  if (isa == "amx" || isa == "avx512") return Gmacs(threads, 12 * 16, Floats512);
  if (isa == "avx2") return Gmacs(threads, 12 * 8, Floats256);
  return 0.0;
}

double ReadBandwidth(int64_t bytes, int threads) {
  AlignedBuffer buffer = AlignedBuffer::Allocate(static_cast<size_t>(bytes));
  const std::span<uint64_t> words = buffer.As<uint64_t>();
  std::fill(words.begin(), words.end(), uint64_t{1});  // Touched: pages are there.
  const size_t share = words.size() / static_cast<size_t>(threads);
  std::atomic<uint64_t> keep{0};  // So that the reading is not left out.
  const double seconds = BestSeconds(threads, [&](int64_t part, int) {
    keep += Sum(words.subspan(static_cast<size_t>(part) * share, share));
  });
  return static_cast<double>(bytes) / seconds / 1e9;
}

}  // namespace renga
