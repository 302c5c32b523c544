// Made-up figures over made-up time: what is a leak, and what only looks like one.

#include "app/leak_detector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

namespace renga {
namespace {

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;
constexpr LeakDetector::Options kExact = {
    .tolerance_bytes = 16 * kKiB, .step_bytes = 64 * kKiB, .first_scale = 0};
constexpr LeakDetector::Options kHeap = {
    .tolerance_bytes = kMiB, .step_bytes = 256 * kMiB, .first_scale = 1};
constexpr LeakDetector::Options kResident = {
    .tolerance_bytes = 32 * kMiB, .step_bytes = 0, .first_scale = 1};

// What a detector is shown at look number `look`, and what it shall say in the end.
struct Sample {
  LeakDetector::Load load;
  int64_t bytes = 0;
};

class Server {
 public:
  explicit Server(const LeakDetector::Options& options) : detector(options) {}

  // Looks every 10 s; returns how many looks said "leak".
  int Run(int looks, const std::function<Sample(int look)>& sample) {
    int suspected = 0;
    for (int i = 0; i < looks; ++i, ++look_) {
      now_ += std::chrono::seconds(10);
      const Sample shown = sample(look_);
      detector.Add(now_, shown.load, shown.bytes);
      suspected += detector.verdict().suspected ? 1 : 0;
    }
    return suspected;
  }

  LeakDetector detector;

 private:
  TimePoint now_{std::chrono::hours(5)};
  int look_ = 0;
};

int64_t Noise(std::mt19937& random, int64_t most) {
  return std::uniform_int_distribution<int64_t>(0, most)(random);
}

// ---- Leaks.

TEST(LeakDetectorTest, OneKibibytePerRequestIsSeenWhileIdleAndUnderLoad) {
  for (const int64_t work : {0, 40}) {
    for (const auto& options : {kExact, kHeap}) {
      Server server(options);
      server.Run(400, [&](int look) {
        return Sample{.load = {.requests = 10 * look, .work = work},
                      .bytes = 5 * kMiB + 10 * look * kKiB};
      });
      EXPECT_TRUE(server.detector.verdict().suspected) << work;
      EXPECT_NEAR(server.detector.verdict().bytes_per_hour, 3600.0 * kKiB, 400.0 * kKiB);
    }
  }
}

TEST(LeakDetectorTest, ALeakIsSeenThroughTheNoiseOfPermanentLoad) {
  std::mt19937 random(1);
  Server server(kExact);
  server.Run(400, [&](int look) {
    const int64_t work = 20 + Noise(random, 40);
    return Sample{.load = {.requests = 20 * look, .work = work},
                  .bytes = work * 10 * kKiB + 20 * look * kKiB};
  });
  EXPECT_TRUE(server.detector.verdict().suspected);
}

TEST(LeakDetectorTest, ABigBufferPerManyRequestsIsSeenAsAStaircase) {
  Server server(kHeap);
  server.Run(3000, [](int look) {
    return Sample{.load = {.requests = 10 * look, .work = 0},
                  .bytes = 50 * kMiB + look / 300 * 8 * kMiB};
  });
  EXPECT_TRUE(server.detector.verdict().suspected);
}

TEST(LeakDetectorTest, OneBigBufferThatIsNeverGivenBackIsSeen) {
  Server server(kExact);
  EXPECT_EQ(server.Run(200, [](int) { return Sample{.load = {}, .bytes = 0}; }), 0);
  server.Run(200, [](int) { return Sample{.load = {}, .bytes = 8 * kMiB}; });
  EXPECT_TRUE(server.detector.verdict().suspected);
  EXPECT_GT(server.detector.verdict().bytes_per_hour, 0.0);
  // Given back after all: no longer suspected.
  server.Run(100, [](int) { return Sample{.load = {}, .bytes = 0}; });
  EXPECT_FALSE(server.detector.verdict().suspected);
}

TEST(LeakDetectorTest, ALeakOfAHundredKibibytesADayIsSeenWithinDays) {
  std::mt19937 random(2);
  Server server(kHeap);
  const int day = 8640;
  server.Run(14 * day, [&](int look) {
    return Sample{
        .load = {.requests = look / 60, .work = 0},
        .bytes = 20 * kMiB + look * 140 * kKiB / day + Noise(random, 64 * kKiB)};
  });
  EXPECT_TRUE(server.detector.verdict().suspected);
}

TEST(LeakDetectorTest, ALeakThatOnlyWorksByDayIsSeenThroughTheNights) {
  Server server(kHeap);
  int64_t requests = 0;
  int64_t bytes = 20 * kMiB;
  server.Run(6 * 8640, [&](int look) {
    if (look % 8640 < 2880) {
      requests += 5;
      bytes += kKiB;
    }
    return Sample{.load = {.requests = requests, .work = 0}, .bytes = bytes};
  });
  EXPECT_TRUE(server.detector.verdict().suspected);
}

// ---- What is none.

TEST(LeakDetectorTest, ASteadyFigureIsNoLeak) {
  Server server(kExact);
  EXPECT_EQ(server.Run(5000,
                       [](int look) {
                         return Sample{.load = {.requests = look, .work = look % 2},
                                       .bytes = 7 * kMiB};
                       }),
            0);
}

TEST(LeakDetectorTest, AFillUpThatEndsIsNoLeak) {
  Server linear(kHeap);
  EXPECT_EQ(linear.Run(3000,
                       [](int look) {
                         return Sample{
                             .load = {.requests = 10 * look, .work = 0},
                             .bytes = 10 * kMiB + std::min(look, 200) * 256 * kKiB};
                       }),
            0);
  Server saturating(kHeap);
  EXPECT_EQ(saturating.Run(3000,
                           [](int look) {
                             const double full = 1.0 - std::exp(-look / 100.0);
                             return Sample{
                                 .load = {.requests = 10 * look, .work = 0},
                                 .bytes = static_cast<int64_t>(50.0 * kMiB * full)};
                           }),
            0);
}

TEST(LeakDetectorTest, SawTeethAndBurstsOfLoadAreNoLeak) {
  for (const int period : {7, 60, 300, 2000}) {
    Server server(kExact);
    const int suspected = server.Run(10'000, [&](int look) {
      const int64_t work = 50 * (look % period) / period;
      return Sample{.load = {.requests = 10 * look, .work = work},
                    .bytes = work * 20 * kKiB};
    });
    EXPECT_EQ(suspected, 0) << "period " << period;
  }
  std::mt19937 random(3);
  Server bursts(kExact);
  EXPECT_EQ(bursts.Run(10'000,
                       [&](int look) {
                         const int64_t work = random() % 10 == 0 ? Noise(random, 60) : 0;
                         return Sample{.load = {.requests = look, .work = work},
                                       .bytes = work * 20 * kKiB};
                       }),
            0);
}

TEST(LeakDetectorTest, ALoadThatOnlyGrowsIsNoLeak) {
  Server server(kExact);
  EXPECT_EQ(server.Run(2000,
                       [&](int look) {
                         const int64_t work = 1 + look / 20;
                         return Sample{.load = {.requests = look * look, .work = work},
                                       .bytes = work * 20 * kKiB};
                       }),
            0);
}

TEST(LeakDetectorTest, FragmentationOfSomeMebibytesIsNoLeak) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Server noise(kResident);
    // Steps up and down of up to 2 MiB, pulled back to the middle as an allocator is.
    int64_t extra = 0;
    const int suspected = noise.Run(9000, [&](int look) {
      extra += Noise(random, 4 * kMiB) - 2 * kMiB - extra / 50;
      return Sample{.load = {.requests = 10 * look, .work = 0},
                    .bytes = 500 * kMiB + extra};
    });
    EXPECT_EQ(suspected, 0) << "seed " << seed;
  }
}

TEST(LeakDetectorTest, AFirstUseIsNoLeakWhereStepsAreLegal) {
  Server server(kResident);
  EXPECT_EQ(server.Run(5000,
                       [](int look) {
                         return Sample{
                             .load = {.requests = look, .work = 0},
                             .bytes = 400 * kMiB + (look > 2000 ? 300 * kMiB : 0)};
                       }),
            0);
}

TEST(LeakDetectorTest, GrowthThatEndedIsForgotten) {
  Server server(kExact);
  server.Run(400, [](int look) {
    return Sample{.load = {.requests = look, .work = 3}, .bytes = look * 4 * kKiB};
  });
  EXPECT_TRUE(server.detector.verdict().suspected);
  server.Run(4000, [](int look) {
    return Sample{.load = {.requests = look, .work = 3}, .bytes = 1600 * kKiB};
  });
  EXPECT_FALSE(server.detector.verdict().suspected);
}

TEST(LeakDetectorTest, ARestartForgetsEverything) {
  Server server(kExact);
  const auto leak = [](int look) {
    return Sample{.load = {.requests = look, .work = 0}, .bytes = look * 4 * kKiB};
  };
  server.Run(400, leak);
  EXPECT_TRUE(server.detector.verdict().suspected);
  server.detector.Restart();
  EXPECT_FALSE(server.detector.verdict().suspected);
  EXPECT_EQ(server.Run(90, leak), 0);
  EXPECT_GT(server.Run(20, leak), 0);
}

}  // namespace
}  // namespace renga
