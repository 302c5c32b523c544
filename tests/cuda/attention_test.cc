// The attention kernels under the emulator: the checks that a GPU runs too, and what only
// the emulator sees: reports, memory that must not be read, orders of threads, traffic.

#include "kernels/cuda/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/cuda/attention_cases.h"
#include "tests/cuda/emulated/emulated_kernels.h"
#include "tests/cuda/expect_checks.h"
#include "tests/simt/simt_device.h"

namespace renga::test {
namespace {

using cuda::PageKind;

std::vector<EmulatedKernel> Kernels() { return KernelsOf(EmulatedAttentionKernels()); }

TEST(Attention, MatchesTheSoftmaxAndItsBitsDoNotDependOnTheBatch) {
  SimtDevice device(Kernels());
  ExpectAllOk(CheckAttention(device, CheckSize::kSmall));
  EXPECT_TRUE(device.reports().empty());
}

TEST(Attention, OtherOrdersOfThreadsChangeNoBit) {
  for (const PageKind kind : {PageKind::kF16, PageKind::kBf16, PageKind::kInt8}) {
    SceneSpec spec{.kind = kind, .head_dim = 32, .heads = 3};
    spec.sequences = {{600, 2, 1}, {70, 30, 2}};
    AttentionScene::Out first;
    for (const uint32_t seed : {0u, 1u, 77u}) {
      SimtDevice device(Kernels(), {.simt = {.seed = seed}});
      AttentionScene scene(device, spec);
      const AttentionScene::Out decode = scene.Decode();
      EXPECT_EQ(decode, scene.Prefill()) << "seed " << seed;
      if (first.empty()) first = decode;
      EXPECT_EQ(decode, first) << "seed " << seed;
      EXPECT_TRUE(device.reports().empty());
    }
  }
}

// Pages of nobody, of other layers, and positions that nobody wrote.
TEST(Attention, ReadsNothingOfOthers) {
  for (const SceneSpec& spec : AttentionScenes(CheckSize::kSmall)) {
    SimtDevice device(Kernels());
    AttentionScene scene(device, spec);
    for (const auto& [at, bytes] : scene.forbidden()) device.Poison(at, bytes);
    EXPECT_FALSE(scene.forbidden().empty());
    EXPECT_EQ(scene.Decode(), scene.Prefill()) << SceneName(spec);
    EXPECT_TRUE(device.reports().empty()) << SceneName(spec);
  }
}

// ---- Traffic: ratchets.

struct Moved {
  double pages = 0.0;   // Bytes of K and V read, of those needed.
  double all = 0.0;     // All sectors, of the bytes of K and V needed.
  double memory = 0.0;  // The same, each sector once in a launch: what the caches leave.
  double banks = 0.0;
};

// Of every launch of a decode or a prefill.
std::vector<SimtCounters> CountersOf(SimtDevice& device, AttentionScene& scene,
                                     bool decode) {
  std::vector<SimtCounters> counters;
  device.Name(scene.pool(), "pages");
  if (scene.forms() != nullptr) device.Name(scene.forms(), "forms");
  scene.set_after_launch(
      [&](cuda::KernelId) { counters.push_back(device.last_counters()); });
  if (decode) {
    scene.Decode();
  } else {
    scene.Prefill();
  }
  return counters;
}

Moved Sum(const std::vector<SimtCounters>& counters, int64_t needed) {
  Moved moved;
  for (const SimtCounters& one : counters) {
    const double sectors =
        static_cast<double>(one.global.read.sectors + one.global.written.sectors);
    moved.all += sectors * 32 / static_cast<double>(needed);
    moved.memory += static_cast<double>(one.global.read.distinct_sectors +
                                        one.global.written.distinct_sectors) *
                    32 / static_cast<double>(needed);
    for (const auto& [name, traffic] : one.buffers) {
      if (name != "pages" && name != "forms") continue;
      moved.pages +=
          static_cast<double>(traffic.read.sectors) * 32 / static_cast<double>(needed);
    }
    moved.banks = std::max(moved.banks, one.WavefrontRatio());
  }
  return moved;
}

SceneSpec EightSequences(PageKind kind, int32_t head_dim) {
  SceneSpec spec{.kind = kind, .head_dim = head_dim, .heads = 4};
  for (uint32_t i = 1; i <= 8; ++i) spec.sequences.push_back({1024, 1, i});
  return spec;
}

// Beside the pages: q (once per warp), partials (written and read), tables. int8 pages
// are half as large, what is beside them is not.
TEST(Attention, DecodeReadsEveryPageOnce) {
  if (!kSimtHooks) GTEST_SKIP() << "needs the hooks on plain accesses";
  for (const PageKind kind : {PageKind::kF16, PageKind::kBf16, PageKind::kInt8}) {
    for (const int32_t head_dim : {64, 128}) {
      SimtDevice device(Kernels());
      AttentionScene scene(device, EightSequences(kind, head_dim));
      const Moved moved = Sum(CountersOf(device, scene, true), scene.needed_bytes());
      const std::string name = SceneName(scene.spec());
      EXPECT_EQ(moved.pages, 1.0) << name;
      EXPECT_LE(moved.all, kind == PageKind::kInt8 ? 1.145 : 1.08) << name;
      EXPECT_LE(moved.memory, 1.1) << name;
      EXPECT_EQ(moved.banks, 1.0) << name;
      std::printf("%s: all sectors %.3f, memory %.3f\n", name.c_str(), moved.all,
                  moved.memory);
    }
  }
}

// 16 tokens of 4 heads are one tile.
TEST(Attention, PrefillReadsEveryPageOnceForATile) {
  for (const PageKind kind : {PageKind::kF16, PageKind::kBf16, PageKind::kInt8}) {
    for (const int32_t head_dim : {16, 32, 64, 96, 128}) {
      SceneSpec spec{.kind = kind, .head_dim = head_dim, .heads = 4};
      spec.sequences = {{512, 16, 1}};
      SimtDevice device(Kernels());
      AttentionScene scene(device, spec);
      const Moved moved = Sum(CountersOf(device, scene, false), scene.needed_bytes());
      EXPECT_EQ(moved.pages, 1.0) << SceneName(spec);
      EXPECT_EQ(moved.banks, 1.0) << SceneName(spec);
    }
  }
}

TEST(Attention, LaunchesFitOurGpus) {
  for (const PageKind kind : {PageKind::kF16, PageKind::kBf16, PageKind::kInt8}) {
    for (int32_t head_dim = 0; head_dim <= 256; head_dim += 8) {
      const bool served = head_dim == 16 || head_dim == 32 || head_dim == 64 ||
                          head_dim == 96 || head_dim == 128;
      EXPECT_EQ(cuda::AttentionServes(kind, head_dim), served) << head_dim;
      if (!served) continue;
      // Two blocks of decode on an SM of 100 KiB, of which a block costs one more.
      EXPECT_LE(2 * (cuda::DecodeSharedBytes(kind, head_dim) + 1024), 100 * 1024);
      EXPECT_LE(cuda::PrefillSharedBytes(head_dim), cuda::kMaxSharedBytes);
    }
  }
}

}  // namespace
}  // namespace renga::test
