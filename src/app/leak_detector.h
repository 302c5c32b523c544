// LeakDetector: says whether one figure, the live bytes of one purpose, grows steadily at
// equal load, however slowly.
//
// Equal load: samples taken while nothing runs or waits are compared among each other,
// and those taken under load among each other; of the latter only stretches over which
// the load itself did not grow. A point is the least of a few samples, so that a busy
// moment counts as little as possible.
//
// However slowly: points are kept at six scales. Each holds the last 16 points, one of
// which is the least of four of the scale below; with a sample every 10 s they look back
// over 16 minutes, an hour, ... and eleven days, in fixed memory.
//
// A scale says "leak" if, over its 16 points,
//   * the bytes grew by more than the tolerance,
//   * steadily: Kendall's rank correlation is at least 0.75 (noise, bursts and saw teeth
//     stay below; a staircase of four or more steps does not),
//   * and did not slow down: per request or per hour, the second half grew at least half
//     as fast as the first. A cache that fills up to its bound slows down.
// Beyond that, a rise of more than `step_bytes` over the least idle point ever that stays
// through all idle points of the first scale is a buffer that was not given back.
//
// It has no clock or thread: samples come with their time.
//
// Thread safety: none. About 10 KB.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "renga/types.h"

namespace renga {

class LeakDetector {
 public:
  struct Options {
    int64_t tolerance_bytes = 16 << 10;
    // Where something is allocated at its first use and kept, a rise is no leak: 0.
    int64_t step_bytes = 0;
    // Scales below this one only feed the others: for figures that fill up for a while
    // after the start.
    int first_scale = 0;
  };
  struct Load {
    int64_t requests = 0;  // Ended since the start.
    int64_t work = 0;      // A measure of what runs and waits; 0: idle.
  };
  struct Verdict {
    bool suspected = false;
    double bytes_per_hour = 0.0;  // Of a suspected leak.
  };

  explicit LeakDetector(const Options& options) : options_(options) {}

  void Add(TimePoint now, const Load& load, int64_t bytes);
  // What was seen so far no longer compares with what comes.
  void Restart();

  const Verdict& verdict() const { return verdict_; }

 private:
  static constexpr int kScales = 6;
  static constexpr size_t kPoints = 16;
  static constexpr int kSamplesPerPoint = 6;
  static constexpr int kPointsPerPoint = 4;

  struct Point {
    double hours = 0.0;
    double requests = 0.0;
    double bytes = 0.0;
    double work = 0.0;
  };
  // The least of the points that came, until there are enough of them.
  struct Least {
    Point point;
    int count = 0;
    std::optional<Point> Add(const Point& next, int enough);
  };
  struct Scale {
    std::vector<Point> points;  // Oldest first, at most kPoints.
    Least least;
  };
  struct History {
    Least samples;
    std::array<Scale, kScales> scales;
    // True if a point was completed.
    bool Add(const Point& sample);
  };

  static double Correlation(std::span<const Point> points, double Point::*figure);
  static bool GoesOn(std::span<const Point> points, double Point::*axis);
  static double SlopePerHour(std::span<const Point> points);
  bool IsGrowth(std::span<const Point> points) const;
  void Judge();
  void JudgeStep();

  const Options options_;
  History idle_;
  History busy_;
  std::optional<Point> least_idle_;
  Verdict verdict_;
};

}  // namespace renga
