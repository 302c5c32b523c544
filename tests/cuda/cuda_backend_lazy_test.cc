// The CUDA backend on a device that runs everything as late and as oddly as it may: same
// bits, no memory touched without an order, nothing left behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda_backend.h"
#include "tests/backend/tiny_company.h"
#include "tests/backend/tiny_model.h"
#include "tests/cuda/emulated_backend.h"
#include "tests/simt/forwarding_device.h"
#include "tests/simt/lazy_device.h"

namespace renga {
namespace {

using test::AllEmulatedKernels;
using test::DeviceCall;
using test::LazyDevice;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Late devices are slow enough without the emulator's own checks, which other tests run.
constexpr test::SimtOptions kUnchecked{.checks = false, .counters = false};

// Sends uploads on a stream of their own, once that is wanted.
class Beside final : public test::ForwardingDevice {
 public:
  using Device::Launch;

  Beside(Device& device, const bool& wanted)
      : ForwardingDevice(device), wanted_(wanted), own_(*device.CreateStream()) {}
  Status CopyToDevice(void* to, const void* from, int64_t bytes,
                      StreamId stream) override {
    return ForwardingDevice::CopyToDevice(to, from, bytes, wanted_ ? own_ : stream);
  }

 private:
  const bool& wanted_;
  const StreamId own_;
};

std::unique_ptr<Backend> MakeBackend(Device& device, const CudaBackendOptions& options) {
  auto backend =
      MakeCudaBackend(std::make_unique<test::ForwardingDevice>(device), options);
  EXPECT_EQ(backend.status().ToString(), "OK");
  return *std::move(backend);
}

// Two sequences: prompts in slices, four steps of one token for both, a page that travels
// and a head that is copied between them. The logits of all steps.
std::vector<std::vector<float>> Serve(const TinyModel& model,
                                      std::unique_ptr<Backend> backend, KvDtype dtype) {
  TinyRunner runner(model, std::move(backend), dtype);
  TinySequence a = MakeSequence(100, 1, runner.free_pages);
  TinySequence b = MakeSequence(240, 2, runner.free_pages);
  std::vector<std::vector<float>> all;
  const auto step = [&](const std::vector<TinySequence*>& who,
                        const std::vector<int32_t>& counts) {
    const auto logits = runner.Step(who, counts);
    all.insert(all.end(), logits.begin(), logits.end());
  };
  step({&a, &b}, {80, 180});  // Enough rows for cuBLASLt.
  step({&a, &b}, {1, 50});
  step({&a, &b}, {1, 1});
  Backend& device = runner.backend();
  std::vector<std::byte> page(static_cast<size_t>(device.page_bytes()));
  EXPECT_TRUE(device.ReadPage(b.pages[0], page).ok());
  b.pages[0] = runner.free_pages[0];
  EXPECT_TRUE(device.WritePage(b.pages[0], page).ok());
  for (int i = 0; i < 3; ++i) step({&a, &b}, {1, 1});
  if (dtype != KvDtype::kInt8) {
    const PageId copy = runner.free_pages[1];
    EXPECT_TRUE(device.CopyPageHead(b.pages[3], copy, 42).ok());
    b.pages[3] = copy;
  }
  step({&a, &b}, {1, 1});
  return all;
}

void ExpectSameBits(const std::vector<std::vector<float>>& expected,
                    const std::vector<std::vector<float>>& got) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::memcmp(got[i].data(), expected[i].data(), got[i].size() * 4), 0) << i;
  }
}

TEST(CudaBackendLazy, EveryLegalOrderGivesTheSameBitsAndTouchesNothingWithoutAnOrder) {
  const TinyModel model = MakeModel({TensorType::kQ4_1}, TinyShape());
  for (const KvDtype dtype : {KvDtype::kF16, KvDtype::kInt8}) {
    for (const bool invariant : {true, false}) {
      const CudaBackendOptions options{
          .row_invariant = invariant, .threads = 1, .arena_block_bytes = 0};
      test::SimtDevice at_once(AllEmulatedKernels(), {.simt = kUnchecked});
      const auto expected = Serve(model, MakeBackend(at_once, options), dtype);
      for (const uint32_t seed : {1u, 2u, 3u}) {
        LazyDevice late(AllEmulatedKernels(), {.seed = seed, .simt = kUnchecked});
        ExpectSameBits(expected, Serve(model, MakeBackend(late, options), dtype));
        EXPECT_THAT(late.reports(), IsEmpty());
        EXPECT_THAT(late.Leaks(), IsEmpty());
        EXPECT_EQ(late.pending(), 0u);
      }
    }
  }
}

TEST(CudaBackendLazy, WhatAFailedStepReadsIsWaitedForBeforeItIsWritten) {
  const TinyModel model = MakeModel({TensorType::kF16}, TinyShape());
  LazyDevice device(AllEmulatedKernels(), {.simt = kUnchecked});
  TinyRunner runner(model, MakeBackend(device, {.graphs = false, .threads = 1}),
                    KvDtype::kF16);
  const TinySequence s = MakeSequence(5, 1, runner.free_pages);
  const SequenceRows rows{
      .first_row = 0, .rows = 5, .first_position = 0, .pages = s.pages};
  const int32_t logit_row = 4;
  const StepBatch batch{
      .tokens = s.ids, .sequences = {&rows, 1}, .logit_rows = {&logit_row, 1}};
  const auto items = runner.Plan({rows}, 0);
  device.FailAt(DeviceCall::kLaunch, 3, Internal("not today"));
  EXPECT_EQ(runner.TryForward(batch, {items}).code(), StatusCode::kInternal);
  EXPECT_GT(device.pending(), 1u);
  EXPECT_EQ(runner.backend().BeginStep(batch, {items}).ToString(), "OK");
  EXPECT_EQ(device.pending(), 1u) << "more than the new tables";
  EXPECT_EQ(runner.TryForward(batch, {items}).ToString(), "OK");
  EXPECT_TRUE(runner.backend().Logits(0).ok());
  EXPECT_EQ(device.pending(), 0u);
  EXPECT_THAT(device.reports(), IsEmpty());
}

// At once, so that the values are right and only the missing order is wrong.
TEST(CudaBackendLazy, TablesThatTravelBesideTheirKernelsWouldBeSeen) {
  if (!test::kSimtHooks) GTEST_SKIP() << "needs the hooks on plain accesses";
  const TinyModel model = MakeModel({TensorType::kF16}, TinyShape());
  LazyDevice device(AllEmulatedKernels(), {.eager = true, .simt = kUnchecked});
  bool wanted = false;
  auto backend =
      MakeCudaBackend(std::make_unique<Beside>(device, wanted), {.threads = 1});
  ASSERT_EQ(backend.status().ToString(), "OK");
  TinyRunner runner(model, *std::move(backend), KvDtype::kF16);
  TinySequence s = MakeSequence(10, 1, runner.free_pages);
  runner.Step({&s}, {5});
  runner.Step({&s}, {1});
  EXPECT_THAT(device.reports(), IsEmpty());
  wanted = true;
  runner.Step({&s}, {1});
  EXPECT_THAT(device.reports(),
              Contains(AllOf(HasSubstr("a copy to the device"), HasSubstr("kEmbed"),
                             HasSubstr("the first writes, the second reads"))));
}

}  // namespace
}  // namespace renga
