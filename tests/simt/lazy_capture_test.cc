// Captures and graphs of LazyDevice: what a capture forbids, and what a replay repeats.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/simt/lazy_device.h"
#include "tests/simt/lazy_rig.h"

namespace renga::test {
namespace {

using testing::HasSubstr;

void Do(const Status& status) { LazyRig::Do(status); }

// x up, y = x + amount + baked, y down: two streams, fork and join.
GraphId CaptureStep(LazyRig& rig, const uint32_t* amount, uint32_t baked) {
  EXPECT_TRUE(rig.device.BeginCapture(rig.a).ok());
  EXPECT_TRUE(rig.Upload(rig.x, rig.a).ok());
  EXPECT_TRUE(rig.After(rig.b, rig.a).ok());
  EXPECT_TRUE(rig.Add(rig.y, rig.x, amount, rig.b, baked).ok());
  EXPECT_TRUE(rig.After(rig.a, rig.b).ok());
  EXPECT_TRUE(rig.Download(rig.y, rig.a).ok());
  return LazyRig::Get(rig.device.EndCapture(rig.a));
}

// ---- Replays
// ---------------------------------------------------------------------------

TEST(LazyCaptureTest, NothingRunsWhileAStreamIsCaptured) {
  LazyRig rig({.eager = true});
  rig.host_out[3] = 77;
  CaptureStep(rig, rig.zero, 1);
  EXPECT_EQ(rig.host_out[3], 77u);
}

TEST(LazyCaptureTest, AReplayReadsWhatIsInMemoryThen) {
  for (uint32_t seed = 0; seed < kLazySeeds; ++seed) {
    LazyRig rig({.seed = seed});
    uint32_t* amount = rig.NewWords();
    const GraphId graph = CaptureStep(rig, amount, 0);
    for (uint32_t step = 1; step <= 4; ++step) {
      const std::vector<uint32_t> now(LazyRig::kWords, step);
      Do(rig.device.CopyToDevice(amount, now.data(), LazyRig::kBytes, rig.a));
      Do(rig.device.Replay(graph, rig.a));
      EXPECT_TRUE(rig.device.Synchronize(rig.a).ok());
      EXPECT_TRUE(rig.GotCounting(step)) << "seed " << seed << ", step " << step;
    }
    EXPECT_EQ(rig.Reports(), "");
  }
}

// What changes from step to step must not be an argument: a replay has the old one.
TEST(LazyCaptureTest, AnArgumentIsThatOfTheCapture) {
  for (uint32_t seed = 0; seed < kLazySeeds; ++seed) {
    LazyRig rig({.seed = seed});
    uint32_t length = 1;
    const GraphId graph = CaptureStep(rig, rig.zero, length);
    for (; length <= 3; ++length) {
      Do(rig.device.Replay(graph, rig.a));
      EXPECT_TRUE(rig.device.Synchronize(rig.a).ok());
      EXPECT_EQ(rig.GotCounting(length), length == 1) << "seed " << seed;
    }
  }
}

TEST(LazyCaptureTest, ReplaysOfOneGraphFollowEachOther) {
  for (uint32_t seed = 0; seed < kLazySeeds; ++seed) {
    LazyRig rig({.seed = seed});
    const GraphId graph = CaptureStep(rig, rig.zero, 1);
    Do(rig.device.Replay(graph, rig.a));
    Do(rig.device.Replay(graph, rig.b));
    EXPECT_TRUE(rig.device.Synchronize(rig.b).ok());
    rig.device.NoteHostRead(rig.host_out, LazyRig::kBytes);
    EXPECT_TRUE(rig.GotCounting(1));
    EXPECT_EQ(rig.Reports(), "");
  }
}

TEST(LazyCaptureTest, BranchesOfAGraphRaceAsStreamsDo) {
  for (uint32_t seed = 0; seed < kLazySeeds; ++seed) {
    LazyRig rig({.seed = seed});
    Do(rig.device.BeginCapture(rig.a));
    Do(rig.After(rig.b, rig.a));
    Do(rig.Upload(rig.x, rig.a));  // After the fork: beside what follows.
    Do(rig.Add(rig.y, rig.x, rig.zero, rig.b));
    Do(rig.After(rig.a, rig.b));
    const GraphId graph = LazyRig::Get(rig.device.EndCapture(rig.a));
    EXPECT_EQ(rig.Reports(), "");
    Do(rig.device.Replay(graph, rig.a));
    Do(rig.device.Synchronize(rig.a));
    EXPECT_THAT(rig.Reports(), HasSubstr("without an order")) << "seed " << seed;
  }
}

TEST(LazyCaptureTest, AReplayComesAfterWhatItsStreamHeld) {
  for (uint32_t seed = 0; seed < kLazySeeds; ++seed) {
    LazyRig rig({.seed = seed});
    const GraphId graph = CaptureStep(rig, rig.zero, 0);
    Do(rig.device.Fill(rig.x, 9, LazyRig::kBytes, rig.a));
    Do(rig.device.Replay(graph, rig.a));
    Do(rig.device.Fill(rig.y, 9, LazyRig::kBytes, rig.a));
    EXPECT_TRUE(rig.device.Synchronize(rig.a).ok());
    EXPECT_TRUE(rig.GotCounting(0)) << "seed " << seed;
    EXPECT_EQ(rig.Reports(), "");
  }
}

// ---- What kills a capture
// --------------------------------------------------------------

struct Forbidden {
  const char* name;
  void (*call)(LazyRig& rig);
};

constexpr Forbidden kForbidden[] = {
    {"Synchronize", [](LazyRig& rig) { Do(rig.device.Synchronize(rig.a)); }},
    {"SynchronizeEvent",
     [](LazyRig& rig) { Do(rig.device.SynchronizeEvent(rig.event)); }},
    {"Allocate",
     [](LazyRig& rig) { Do(rig.device.Allocate(8, MemoryPurpose::kOther).status()); }},
    {"Free", [](LazyRig& rig) { rig.device.Free(rig.y); }},
    {"AllocatePinned", [](LazyRig& rig) { Do(rig.device.AllocatePinned(8).status()); }},
    {"FreePinned", [](LazyRig& rig) { rig.device.FreePinned(rig.host_out); }},
    {"CreateStream", [](LazyRig& rig) { Do(rig.device.CreateStream().status()); }},
    {"BeginCapture", [](LazyRig& rig) { Do(rig.device.BeginCapture(rig.b)); }},
    {"Replay", [](LazyRig& rig) { Do(rig.device.Replay(GraphId{1}, rig.a)); }},
    {"DestroyGraph", [](LazyRig& rig) { rig.device.DestroyGraph(GraphId{1}); }},
    {"FromPageable",
     [](LazyRig& rig) {
       const uint32_t word = 1;
       Do(rig.device.CopyToDevice(rig.x, &word, sizeof word, rig.a));
     }},
    {"ToPageable",
     [](LazyRig& rig) {
       uint32_t word = 1;
       Do(rig.device.CopyToHost(&word, rig.x, sizeof word, rig.a));
     }},
    {"OtherStream", [](LazyRig& rig) { Do(rig.Upload(rig.x, rig.b)); }},
    {"EventFromOutside", [](LazyRig& rig) { Do(rig.device.Wait(rig.a, rig.event)); }},
    {"AFailedCall",
     [](LazyRig& rig) {
       rig.device.FailAt(DeviceCall::kFill, 1, Internal("no"));
       Do(rig.device.Fill(rig.x, 0, 4, rig.a));
     }},
};

class ForbiddenTest : public testing::TestWithParam<Forbidden> {};

TEST_P(ForbiddenTest, KillsTheCaptureAndNothingElse) {
  LazyRig rig({});
  const GraphId first = CaptureStep(rig, rig.zero, 0);
  EXPECT_EQ(static_cast<int>(first), 1);
  const EventId outside = LazyRig::Get(rig.device.CreateEvent());
  rig.event = outside;
  Do(rig.device.Record(outside, rig.a));
  ASSERT_TRUE(rig.device.BeginCapture(rig.a).ok());
  ASSERT_TRUE(rig.device.Fill(rig.x, 0, 4, rig.a).ok());
  GetParam().call(rig);
  EXPECT_FALSE(rig.device.EndCapture(rig.a).ok());
  EXPECT_THAT(rig.Reports(), HasSubstr("a capture died"));
  // The next one is not its heir.
  ASSERT_TRUE(rig.device.BeginCapture(rig.a).ok());
  EXPECT_TRUE(rig.device.EndCapture(rig.a).ok());
  EXPECT_TRUE(rig.device.Synchronize(rig.a).ok());
}

INSTANTIATE_TEST_SUITE_P(All, ForbiddenTest, testing::ValuesIn(kForbidden),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(LazyCaptureTest, AnEndWithoutABeginningOrOfAnotherStreamFails) {
  LazyRig rig({});
  EXPECT_FALSE(rig.device.EndCapture(rig.a).ok());
  ASSERT_TRUE(rig.device.BeginCapture(rig.a).ok());
  EXPECT_FALSE(rig.device.EndCapture(rig.b).ok());
  EXPECT_TRUE(rig.device.Synchronize(rig.a).ok());
}

TEST(LazyCaptureTest, AnEventOfACaptureIsNoneOutside) {
  LazyRig rig({});
  CaptureStep(rig, rig.zero, 0);
  EXPECT_FALSE(rig.device.Wait(rig.b, rig.event).ok());
  EXPECT_FALSE(rig.device.SynchronizeEvent(rig.event).ok());
  EXPECT_THAT(rig.Reports(), HasSubstr("last recorded in a capture"));
  Do(rig.device.Record(rig.event, rig.a));
  EXPECT_TRUE(rig.device.Wait(rig.b, rig.event).ok());
}

TEST(LazyCaptureTest, AGraphIsDestroyedOnce) {
  LazyRig rig({});
  const GraphId graph = CaptureStep(rig, rig.zero, 0);
  rig.device.DestroyGraph(graph);
  EXPECT_EQ(rig.Reports(), "");
  EXPECT_FALSE(rig.device.Replay(graph, rig.a).ok());
  rig.device.DestroyGraph(graph);
  EXPECT_THAT(rig.Reports(), HasSubstr("DestroyGraph of what is no graph"));
}

}  // namespace
}  // namespace renga::test
