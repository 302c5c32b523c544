// LazyDevice finds the mistakes that it was made for, whatever order it happens to
// choose, and nothing in the program without them.

#include "tests/simt/lazy_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/simt/lazy_rig.h"

namespace renga::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void Do(const Status& status) { LazyRig::Do(status); }

// ---- Planted mistakes, each with its right twin
// ----------------------------------------

// A program that ends with counting words, + `offset`, in host_out.
struct Planted {
  const char* name;
  const char* report;  // Part of what is reported for the wrong one.
  uint32_t offset;
  void (*run)(LazyRig& rig, bool right);
};

void UploadBeside(LazyRig& rig, bool right) {
  Do(rig.Upload(rig.x, rig.a));
  if (right) Do(rig.After(rig.b, rig.a));
  Do(rig.Add(rig.y, rig.x, rig.zero, rig.b, 1));
  Do(rig.Download(rig.y, rig.b));
  Do(rig.device.Synchronize(rig.a));
  Do(rig.device.Synchronize(rig.b));
}

void FreeEarly(LazyRig& rig, bool right) {
  uint32_t* passing = rig.NewWords();
  Do(rig.Upload(passing, rig.a));
  Do(rig.Add(rig.y, passing, rig.zero, rig.a));
  if (right) Do(rig.device.Synchronize(rig.a));
  rig.device.Free(passing);
  Do(rig.Download(rig.y, rig.a));
  Do(rig.device.Synchronize(rig.a));
}

void FreeForAnother(LazyRig& rig, bool right) {
  uint32_t* passing = rig.NewWords();
  Do(rig.Upload(passing, rig.a));
  Do(rig.Add(rig.y, passing, rig.zero, rig.a));
  if (right) Do(rig.device.Synchronize(rig.a));
  rig.device.Free(passing);
  uint32_t* next = rig.NewWords();
  Do(rig.device.Fill(next, 7, LazyRig::kBytes, rig.b));
  Do(rig.device.Synchronize(rig.b));
  rig.device.Free(next);
  Do(rig.Download(rig.y, rig.a));
  Do(rig.device.Synchronize(rig.a));
}

void ReuseOfStaging(LazyRig& rig, bool right) {
  Do(rig.Upload(rig.x, rig.a));
  if (right) Do(rig.device.Synchronize(rig.a));
  rig.device.NoteHostWrite(rig.host_in, LazyRig::kBytes);
  std::memset(rig.host_in, 0, LazyRig::kBytes);
  Do(rig.Download(rig.x, rig.a));
  Do(rig.device.Synchronize(rig.a));
}

// Nobody notes the write.
void SilentReuseOfStaging(LazyRig& rig, bool right) {
  uint32_t* words = rig.NewPinned();
  std::memcpy(words, rig.host_in, LazyRig::kBytes);
  for (int step = 0; step < 16; ++step) {
    Do(rig.device.CopyToDevice(rig.x, words, LazyRig::kBytes, rig.a));
    if (right) Do(rig.device.Synchronize(rig.a));
    words[0] = right ? 0 : static_cast<uint32_t>(step) + 1;
  }
  Do(rig.Download(rig.x, rig.a));
  Do(rig.device.Synchronize(rig.a));
  rig.device.FreePinned(words);
}

void ReadBeforeWait(LazyRig& rig, bool right) {
  Do(rig.Upload(rig.x, rig.a));
  Do(rig.Download(rig.x, rig.a));
  if (right) Do(rig.device.Synchronize(rig.a));
  rig.device.NoteHostRead(rig.host_out, LazyRig::kBytes);
  Do(rig.device.Synchronize(rig.a));
}

void WaitForTheWrongStream(LazyRig& rig, bool right) {
  Do(rig.Upload(rig.x, rig.a));
  Do(rig.Download(rig.x, rig.a));
  Do(rig.device.Synchronize(right ? rig.a : rig.b));
  rig.device.NoteHostRead(rig.host_out, LazyRig::kBytes);
  Do(rig.device.Synchronize(rig.a));
}

// The event is recorded before the work that it should stand for.
void RecordTooEarly(LazyRig& rig, bool right) {
  if (!right) Do(rig.device.Record(rig.event, rig.a));
  Do(rig.Upload(rig.x, rig.a));
  if (right) Do(rig.device.Record(rig.event, rig.a));
  Do(rig.device.Wait(rig.b, rig.event));
  Do(rig.Download(rig.x, rig.b));
  Do(rig.device.Synchronize(rig.a));
  Do(rig.device.Synchronize(rig.b));
}

// Reading may go on while another overwrites what is read.
void OverwriteWhileRead(LazyRig& rig, bool right) {
  Do(rig.Upload(rig.x, rig.a));
  Do(rig.Add(rig.y, rig.x, rig.zero, rig.a));
  if (right) Do(rig.After(rig.b, rig.a));
  Do(rig.device.Fill(rig.x, 0, LazyRig::kBytes, rig.b));
  Do(rig.Download(rig.y, rig.a));
  Do(rig.device.Synchronize(rig.a));
  Do(rig.device.Synchronize(rig.b));
}

// The second replay comes before the host has seen the first one's result.
void StagingOfAReplay(LazyRig& rig, bool right) {
  Do(rig.device.BeginCapture(rig.a));
  Do(rig.Upload(rig.x, rig.a));
  Do(rig.Download(rig.x, rig.a));
  const GraphId graph = LazyRig::Get(rig.device.EndCapture(rig.a));
  for (uint32_t step = 0; step < 2; ++step) {
    rig.device.NoteHostWrite(rig.host_in, LazyRig::kBytes);
    for (uint32_t i = 0; i < LazyRig::kWords; ++i) rig.host_in[i] = i + step;
    Do(rig.device.Replay(graph, rig.a));
    if (right) Do(rig.device.Synchronize(rig.a));
  }
  Do(rig.device.Synchronize(rig.a));
  rig.device.DestroyGraph(graph);
}

void ForgottenJoin(LazyRig& rig, bool right) {
  Do(rig.device.BeginCapture(rig.a));
  Do(rig.Upload(rig.x, rig.a));
  Do(rig.After(rig.b, rig.a));
  Do(rig.Add(rig.y, rig.x, rig.zero, rig.b, 1));
  if (right) Do(rig.After(rig.a, rig.b));
  Do(rig.Download(rig.y, rig.a));
  const StatusOr<GraphId> graph = rig.device.EndCapture(rig.a);
  EXPECT_EQ(graph.ok(), right);
  if (!graph.ok()) return;
  Do(rig.device.Replay(*graph, rig.a));
  Do(rig.device.Synchronize(rig.a));
  rig.device.DestroyGraph(*graph);
}

void FreeUnderAGraph(LazyRig& rig, bool right) {
  uint32_t* passing = rig.NewWords();
  Do(rig.device.BeginCapture(rig.a));
  Do(rig.Upload(passing, rig.a));
  Do(rig.Download(passing, rig.a));
  const GraphId graph = LazyRig::Get(rig.device.EndCapture(rig.a));
  if (!right) rig.device.Free(passing);
  Do(rig.device.Replay(graph, rig.a));
  Do(rig.device.Synchronize(rig.a));
  rig.device.DestroyGraph(graph);
  if (right) rig.device.Free(passing);
}

constexpr Planted kPlanted[] = {
    {"UploadBeside", "a copy to the device", 1, UploadBeside},
    {"FreeEarly", "a Free", 0, FreeEarly},
    {"FreeForAnother", "a Free", 0, FreeForAnother},
    {"ReuseOfStaging", "a write of the host", 0, ReuseOfStaging},
    {"SilentReuseOfStaging", "the host changed what a copy", 0, SilentReuseOfStaging},
    {"ReadBeforeWait", "a read of the host", 0, ReadBeforeWait},
    {"WaitForTheWrongStream", "a read of the host", 0, WaitForTheWrongStream},
    {"RecordTooEarly", "a copy to the host", 0, RecordTooEarly},
    {"OverwriteWhileRead", "the first reads, the second writes", 0, OverwriteWhileRead},
    {"StagingOfAReplay", "a write of the host", 1, StagingOfAReplay},
    {"ForgottenJoin", "was not joined back", 1, ForgottenJoin},
    {"FreeUnderAGraph", "freed before the call", 0, FreeUnderAGraph},
};

class PlantedTest : public testing::TestWithParam<Planted> {};

TEST_P(PlantedTest, TheMistakeIsReportedInEveryOrder) {
  for (uint32_t seed = 0; seed < kLazySeeds; ++seed) {
    LazyRig rig({.seed = seed});
    GetParam().run(rig, false);
    EXPECT_THAT(rig.Reports(), HasSubstr(GetParam().report)) << "seed " << seed;
  }
}

TEST_P(PlantedTest, TheRightTwinIsCleanInEveryOrder) {
  for (uint32_t seed = 0; seed < kLazySeeds; ++seed) {
    LazyRig rig({.seed = seed});
    GetParam().run(rig, true);
    EXPECT_EQ(rig.Reports(), "") << "seed " << seed;
    EXPECT_TRUE(rig.GotCounting(GetParam().offset)) << "seed " << seed;
    rig.FreeAll();
    EXPECT_THAT(rig.device.Leaks(), IsEmpty());
    EXPECT_EQ(rig.device.pending(), 0u);
  }
}

TEST_P(PlantedTest, RunningAtOnceHidesNothingButTheSilentReuse) {
  LazyRig rig({.eager = true});
  GetParam().run(rig, false);
  const bool silent = std::string(GetParam().name) == "SilentReuseOfStaging";
  EXPECT_EQ(rig.Reports().empty(), silent) << rig.Reports();
}

INSTANTIATE_TEST_SUITE_P(All, PlantedTest, testing::ValuesIn(kPlanted),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- Orders
// ----------------------------------------------------------------------------

TEST(LazyDeviceTest, WorkWithoutAnOrderRunsInEitherOrder) {
  std::set<uint32_t> seen;
  for (uint32_t seed = 0; seed < kLazySeeds; ++seed) {
    LazyRig rig({.seed = seed});
    Do(rig.device.Fill(rig.x, 1, LazyRig::kBytes, rig.a));
    Do(rig.device.Fill(rig.x, 2, LazyRig::kBytes, rig.b));
    Do(rig.device.Synchronize(rig.a));
    Do(rig.device.Synchronize(rig.b));
    Do(rig.Download(rig.x, rig.a));
    Do(rig.device.Synchronize(rig.a));
    seen.insert(rig.host_out[0]);
  }
  EXPECT_THAT(seen, ElementsAre(0x01010101u, 0x02020202u));
}

TEST(LazyDeviceTest, AStreamRunsInOrder) {
  for (uint32_t seed = 0; seed < kLazySeeds; ++seed) {
    LazyRig rig({.seed = seed});
    Do(rig.Upload(rig.x, rig.a));
    for (int i = 0; i < 6; ++i) {
      Do(rig.Add(rig.y, rig.x, rig.zero, rig.a, 1));
      Do(rig.device.CopyOnDevice(rig.x, rig.y, LazyRig::kBytes, rig.a));
    }
    Do(rig.Download(rig.x, rig.a));
    Do(rig.device.Synchronize(rig.a));
    EXPECT_TRUE(rig.GotCounting(6)) << "seed " << seed;
    EXPECT_EQ(rig.Reports(), "");
  }
}

TEST(LazyDeviceTest, PageableMemoryIsReadAtTheCall) {
  LazyRig rig({.seed = 1});
  std::vector<uint32_t> words(rig.host_in, rig.host_in + LazyRig::kWords);
  Do(rig.device.CopyToDevice(rig.x, words.data(), LazyRig::kBytes, rig.a));
  std::fill(words.begin(), words.end(), 0u);
  Do(rig.Download(rig.x, rig.a));
  Do(rig.device.Synchronize(rig.a));
  EXPECT_TRUE(rig.GotCounting(0));
}

TEST(LazyDeviceTest, ACopyToPageableMemoryHasBeenMadeAtItsReturn) {
  LazyRig rig({.seed = 1});
  std::vector<uint32_t> words(LazyRig::kWords, 1u);
  Do(rig.Upload(rig.x, rig.a));
  Do(rig.device.CopyToHost(words.data(), rig.x, LazyRig::kBytes, rig.a));
  EXPECT_TRUE(std::equal(words.begin(), words.end(), rig.host_in));
}

TEST(LazyDeviceTest, WhatComesDownHasNoMeaningBeforeTheWait) {
  LazyRig rig({.seed = 2});
  rig.host_out[0] = 5;
  Do(rig.Upload(rig.x, rig.a));
  Do(rig.Download(rig.x, rig.a));
  EXPECT_NE(rig.host_out[0], 5u);
}

TEST(LazyDeviceTest, AWaitForAnEventIsOneForWhatItRecorded) {
  for (uint32_t seed = 0; seed < kLazySeeds; ++seed) {
    LazyRig rig({.seed = seed});
    Do(rig.Upload(rig.x, rig.a));
    Do(rig.Download(rig.x, rig.a));
    Do(rig.device.Record(rig.event, rig.a));
    Do(rig.device.Fill(rig.y, 3, LazyRig::kBytes, rig.a));
    EXPECT_TRUE(rig.device.SynchronizeEvent(rig.event).ok());
    rig.device.NoteHostRead(rig.host_out, LazyRig::kBytes);
    EXPECT_TRUE(rig.GotCounting(0));
    EXPECT_EQ(rig.Reports(), "");
  }
}

// ---- Memory
// ----------------------------------------------------------------------------

TEST(LazyDeviceTest, AReportSaysWhereAndAfterAReuseNotByTheOldName) {
  LazyRig rig({.seed = 1});
  const auto race = [&](uint32_t* at) {
    Do(rig.device.Fill(at + 3, 1, 8, rig.a));
    Do(rig.device.Fill(at, 1, 16, rig.b));
    Do(rig.device.Synchronize(rig.a));
    Do(rig.device.Synchronize(rig.b));
    return rig.Reports();
  };
  rig.device.Name(rig.x, "tables");
  EXPECT_THAT(race(rig.x), HasSubstr("a fill (call 4) and a fill (call 5) touch byte 12 "
                                     "of tables without an order: both write"));
  rig.device.Free(rig.x);
  LazyRig other({.seed = 1});
  other.device.Name(other.x, "tables");
  other.device.Free(other.x);
  uint32_t* again = other.NewWords();
  ASSERT_EQ(again, other.x);
  Do(other.device.Fill(again, 1, 8, other.a));
  Do(other.device.Fill(again, 1, 8, other.b));
  Do(other.device.Synchronize(other.a));
  Do(other.device.Synchronize(other.b));
  EXPECT_THAT(other.Reports(), HasSubstr("byte 0 of 2048 bytes of the device"));
}

TEST(LazyDeviceTest, WhatWasFreedLastIsGivenOutFirstAndHasNoMeaning) {
  if (!kSimtHooks) GTEST_SKIP() << "needs the hooks on plain accesses";
  LazyRig rig({});
  rig.device.Free(rig.x);
  rig.device.Free(rig.y);
  EXPECT_EQ(rig.NewWords(), rig.y);
  EXPECT_EQ(rig.NewWords(), rig.x);
  EXPECT_EQ(rig.x[0], 0xffffffffu);
  Do(rig.Add(rig.y, rig.x, rig.zero, rig.a));
  EXPECT_EQ(rig.device.Synchronize(rig.a).code(), StatusCode::kUnavailable);
  EXPECT_THAT(rig.Reports(), HasSubstr("uninitialised"));
}

TEST(LazyDeviceTest, MemoryIsCountedAndBooked) {
  MemoryLedger& ledger = MemoryLedger::Process();
  const int64_t booked = ledger.Read(MemoryPurpose::kKvPool).bytes;
  LazyRig rig({});
  const int64_t used = rig.device.used_bytes();
  void* pool = LazyRig::Get(rig.device.Allocate(1000, MemoryPurpose::kKvPool));
  EXPECT_EQ(ledger.Read(MemoryPurpose::kKvPool).bytes, booked + 1000);
  EXPECT_EQ(rig.device.used_bytes(), used + 1000);
  rig.device.Free(pool);
  EXPECT_EQ(ledger.Read(MemoryPurpose::kKvPool).bytes, booked);
  EXPECT_EQ(rig.device.used_bytes(), used);
  EXPECT_EQ(rig.device.most_bytes(), used + 1000);
}

TEST(LazyDeviceTest, WhatIsNotFreedIsALeakAndWhatIsFreedTwiceIsReported) {
  LazyRig rig({});
  EXPECT_EQ(rig.device.Leaks().size(), 5u);
  rig.FreeAll();
  EXPECT_THAT(rig.device.Leaks(), IsEmpty());
  EXPECT_EQ(rig.Reports(), "");
  rig.device.Free(rig.x);
  EXPECT_THAT(rig.Reports(), HasSubstr("Free of what is no allocation"));
  rig.device.FreePinned(rig.host_in);
  EXPECT_THAT(rig.Reports(), HasSubstr("FreePinned of what is no pinned memory"));
}

TEST(LazyDeviceTest, CopiesBeyondAnAllocationAreRefusedAndReported) {
  LazyRig rig({});
  const auto code = [](const Status& status) { return status.code(); };
  EXPECT_EQ(code(rig.device.Fill(rig.x, 0, LazyRig::kBytes + 1, rig.a)),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code(rig.device.CopyToDevice(rig.x, rig.host_in + 1, LazyRig::kBytes, rig.a)),
            StatusCode::kInvalidArgument);
  EXPECT_THAT(rig.Reports(), HasSubstr("a fill outside of the device's memory"));
  EXPECT_THAT(rig.Reports(), HasSubstr("reaches beyond pinned memory"));
  rig.device.FreePinned(rig.host_in);
  EXPECT_EQ(code(rig.Upload(rig.x, rig.a)), StatusCode::kInvalidArgument);
  EXPECT_THAT(rig.Reports(), HasSubstr("uses pinned memory that was freed"));
}

TEST(LazyDeviceTest, MoreThanThereIsSaysHowMuchIsFree) {
  LazyRig rig({.total_bytes = 10'000});
  const Status status = rig.device.Allocate(5000, MemoryPurpose::kOther).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("5000 bytes"));
  EXPECT_THAT(status.message(), HasSubstr(std::to_string(10'000 - 3 * LazyRig::kBytes)));
}

// ---- Failures
// --------------------------------------------------------------------------

TEST(LazyDeviceTest, TheNthCallFailsAndTheNextDoesNot) {
  LazyRig rig({});
  rig.device.FailAt(DeviceCall::kAllocate, 2, ResourceExhausted("none left"));
  const auto allocate = [&] {
    return rig.device.Allocate(10, MemoryPurpose::kOther).status().code();
  };
  EXPECT_EQ(allocate(), StatusCode::kOk);
  EXPECT_EQ(allocate(), StatusCode::kResourceExhausted);
  EXPECT_EQ(allocate(), StatusCode::kOk);
}

TEST(LazyDeviceTest, ALostDeviceRefusesEverythingAndKeepsQuietAboutFrees) {
  for (const bool eager : {false, true}) {
    LazyRig rig({.seed = 3, .eager = eager});
    Do(rig.Upload(rig.x, rig.a));
    rig.device.FailAt(DeviceCall::kLaunch, 1, Unavailable("fell off the bus"));
    EXPECT_EQ(rig.Add(rig.y, rig.x, rig.zero, rig.a).code(), StatusCode::kUnavailable);
    EXPECT_EQ(rig.device.pending(), 0u);
    for (const Status& status :
         {rig.device.Synchronize(rig.a), rig.Upload(rig.x, rig.a),
          rig.device.CreateEvent().status(), rig.device.FreeBytes().status(),
          rig.device.BeginCapture(rig.a),
          rig.device.Allocate(1, MemoryPurpose::kOther).status()}) {
      EXPECT_EQ(status.message(), "fell off the bus");
    }
    rig.FreeAll();
    EXPECT_EQ(rig.Reports(), "");
    EXPECT_THAT(rig.device.Leaks(), IsEmpty());
  }
}

TEST(LazyDeviceTest, AKernelThatFailsShowsAtALaterCallAndStays) {
  for (uint32_t seed = 0; seed < kLazySeeds; ++seed) {
    LazyRig rig({.seed = seed});
    EXPECT_TRUE(rig.Add(rig.y, rig.x + 128, rig.zero, rig.a).ok());  // Reads too far.
    EXPECT_EQ(rig.device.Synchronize(rig.a).code(), StatusCode::kUnavailable);
    EXPECT_EQ(rig.device.Synchronize(rig.a).code(), StatusCode::kUnavailable);
    EXPECT_THAT(rig.Reports(), HasSubstr("out of bounds"));
  }
}

// The kernel that came too early finds nothing there; that is the device's end, but the
// reason is the upload without an order, which had not run yet.
TEST(LazyDeviceTest, ALossDoesNotHideTheMissingOrderThatLedToIt) {
  for (uint32_t seed = 0; seed < kLazySeeds; ++seed) {
    LazyRig rig({.seed = seed});
    uint32_t* fresh = rig.NewWords();
    Do(rig.Upload(fresh, rig.a));
    Do(rig.Add(rig.y, fresh, rig.zero, rig.b));
    Do(rig.device.Synchronize(rig.b));
    Do(rig.device.Synchronize(rig.a));
    EXPECT_THAT(rig.Reports(), HasSubstr("without an order")) << "seed " << seed;
  }
}

TEST(LazyDeviceTest, WhatDoesNotExistIsRefused) {
  LazyRig rig({});
  const StreamId stream{99};
  EXPECT_EQ(rig.Upload(rig.x, stream).field(), "stream");
  EXPECT_EQ(rig.device.Wait(rig.a, EventId{99}).field(), "event");
  EXPECT_EQ(rig.device.Replay(GraphId{99}, rig.a).field(), "graph");
  const LazyAddArgs args{};
  EXPECT_EQ(
      rig.device
          .Launch({.kernel = cuda::KernelId{1}, .shape = {.threads = 32}}, args, rig.a)
          .field(),
      "kernel");
  EXPECT_EQ(rig.device.Launch(LazyAddLaunch(1), &args, 4, rig.a).field(), "kernel");
  EXPECT_EQ(rig.device.Launch(LazyAddLaunch(0), args, rig.a).field(), "kernel");
}

}  // namespace
}  // namespace renga::test
