// The kernels on rows and pages under the emulator: the checks that a GPU runs too, and
// what only the emulator sees: reports, other orders of threads, traffic.

#include "kernels/cuda/rows.h"

#include <gtest/gtest.h>

#include "kernels/kv_page_format.h"
#include "tests/cuda/emulated/emulated_kernels.h"
#include "tests/cuda/expect_checks.h"
#include "tests/cuda/rows_cases.h"
#include "tests/simt/simt_device.h"

namespace renga::test {
namespace {

std::vector<EmulatedKernel> Kernels() { return KernelsOf(EmulatedRowKernels()); }

// Lines of "name error" change in no bit with the order of blocks, warps and lanes.
template <class Check>
void ExpectSameForSeeds(const Check& check) {
  std::vector<std::string> first;
  for (const uint32_t seed : {0u, 1u, 77u}) {
    SimtDevice device(Kernels(), {.simt = {.counters = false, .seed = seed}});
    std::vector<std::string> lines;
    for (const CheckResult& result : check(device, CheckSize::kSmall)) {
      char line[160];
      std::snprintf(line, sizeof line, "%s %a", result.name.c_str(), result.error);
      lines.emplace_back(line);
      EXPECT_TRUE(result.ok) << line;
    }
    if (first.empty()) first = lines;
    EXPECT_EQ(lines, first) << "seed " << seed;
    EXPECT_TRUE(device.reports().empty());
  }
}

TEST(Rows, NormSwiGluAndRotationMatchTheirDefinitions) {
  SimtDevice device(Kernels());
  ExpectAllOk(CheckRows(device, CheckSize::kSmall));
  EXPECT_TRUE(device.reports().empty());
}

TEST(Rows, PagesHaveTheBytesOfTheCpu) {
  SimtDevice device(Kernels());
  ExpectAllOk(CheckPages(device, CheckSize::kSmall));
  EXPECT_TRUE(device.reports().empty());
}

TEST(Rows, ChunkPoolMatchesItsDefinition) {
  SimtDevice device(Kernels());
  ExpectAllOk(CheckChunkPool(device, CheckSize::kSmall));
  EXPECT_TRUE(device.reports().empty());
}

TEST(Rows, OtherOrdersOfThreadsChangeNoBit) {
  ExpectSameForSeeds(CheckRows);
  ExpectSameForSeeds(CheckPages);
  ExpectSameForSeeds(CheckChunkPool);
}

// ---- Traffic: ratchets -------------------------------------------------------------

// What a launch moved beside what it must, and the banks it met.
struct Moved {
  double read = 0.0;     // Sectors, of those that had to be read.
  double written = 0.0;  // The same of those written.
  double banks = 0.0;
};
Moved MovedBy(const SimtDevice& device, double read_bytes, double written_bytes) {
  const SimtCounters& counters = device.last_counters();
  return {static_cast<double>(counters.global.read.sectors) * 32 / read_bytes,
          static_cast<double>(counters.global.written.sectors) * 32 / written_bytes,
          counters.WavefrontRatio()};
}

class RowTraffic : public testing::Test {
 protected:
  void SetUp() override {
    if (!kSimtHooks) GTEST_SKIP() << "plain accesses are not seen";
  }
  DeviceBuffer<uint16_t> HalvesOf(int64_t n) {
    return {device_, std::vector<uint16_t>(static_cast<size_t>(n), 0x3C00), stream_};
  }
  DeviceBuffer<float> Floats(int64_t n) { return {device_, Normal(n, 1), stream_}; }
  template <class T>
  DeviceBuffer<T> Table(std::vector<T> values) {
    return {device_, values, stream_};
  }
  template <class Args>
  void Launch(const cuda::KernelLaunch& launch, const Args& args) {
    Must(device_.Launch(launch, args, stream_));
  }

  SimtDevice device_{Kernels()};
  const StreamId stream_ = Must(device_.CreateStream());
};

TEST_F(RowTraffic, NormReadsARowAndItsWeightOnce) {
  const int64_t n = 4096;
  const auto x = Floats(4 * n);
  const auto weight = Floats(n);
  const auto count = Table<int32_t>({4});
  const DeviceBuffer<uint16_t> out(device_, 4 * n, stream_);
  const cuda::RmsNormArgs args{.x = x.data(),
                               .weight = weight.data(),
                               .out = out.data(),
                               .row_count = count.data(),
                               .out_stride = n,
                               .n = static_cast<int32_t>(n)};
  Launch(cuda::RmsNormLaunch(args, 4), args);
  const double floats = 4.0 * 4 * 4096;
  const Moved moved = MovedBy(device_, 2 * floats, floats / 2);
  EXPECT_LE(moved.read, 1.01);
  EXPECT_LE(moved.written, 1.0);
  EXPECT_LE(moved.banks, 1.0);
}

TEST_F(RowTraffic, SwiGluReadsAndWritesWholeSectorsOnce) {
  const int64_t ffn = 2048;
  const auto x = Floats(2 * 2 * ffn);
  const auto count = Table<int32_t>({2});
  const DeviceBuffer<uint16_t> out(device_, 2 * ffn, stream_);
  const cuda::SwiGluArgs args{.gate_up = x.data(),
                              .out = out.data(),
                              .row_count = count.data(),
                              .out_stride = ffn,
                              .ffn = static_cast<int32_t>(ffn)};
  Launch(cuda::SwiGluLaunch(args, 2), args);
  const Moved moved = MovedBy(device_, 2.0 * 2 * 2048 * 4, 2.0 * 2048 * 2);
  EXPECT_LE(moved.read, 1.04);  // The rest: each warp reads the row count.
  EXPECT_LE(moved.written, 1.0);
}

TEST_F(RowTraffic, CloseReadsAFormTwiceAndWritesWholeSectors) {
  const int32_t hd = 128;
  const auto form = HalvesOf(128 * hd);
  const auto forms =
      Table<cuda::ChunkForm>({{reinterpret_cast<uint8_t*>(form.data()), 0}});
  const auto items = Table<cuda::CloseItem>({{0, 0}});
  const auto count = Table<int32_t>({1});
  const int64_t bytes = Int8PageOf(hd).bytes;
  const DeviceBuffer<uint8_t> page(device_, bytes, stream_);
  const cuda::KvCloseArgs args{.items = items.data(),
                               .item_count = count.data(),
                               .forms = forms.data(),
                               .pool = page.data(),
                               .page_bytes = bytes,
                               .page_head_bytes = bytes,
                               .kv_heads = 1,
                               .head_dim = hd};
  Launch(cuda::KvCloseLaunch(args, 1), args);
  const Moved moved = MovedBy(device_, 2.0 * 128 * hd * 2, static_cast<double>(bytes));
  // The first pass over K has a thread per channel, which loads a sector in two halves.
  EXPECT_LE(moved.read, 1.3);
  EXPECT_LE(moved.written, 1.12);  // The rest: min and step, lane by lane.
  EXPECT_LE(moved.banks, 1.0);
}

TEST_F(RowTraffic, ChunkPoolReadsItsTilesOnceWithoutBankConflicts) {
  const int32_t hd = 64;
  const auto x = HalvesOf(2 * 128 * hd);
  const DeviceBuffer<float> out(device_, 2 * 2 * hd, stream_);
  const cuda::ChunkPoolArgs args{.q = x.data(),
                                 .k = x.data(),
                                 .v = x.data(),
                                 .out = out.data(),
                                 .batch_heads = 2,
                                 .n = 128,
                                 .head_dim = hd};
  Launch(cuda::ChunkPoolLaunch(args), args);
  const Moved moved = MovedBy(device_, 3.0 * 2 * 128 * hd * 2, 2.0 * 2 * hd * 4);
  EXPECT_LE(moved.read, 1.0);
  EXPECT_LE(moved.written, 1.0);
  EXPECT_LE(moved.banks, 1.05);
}

}  // namespace
}  // namespace renga::test
