#include "app/leak_detector.h"

#include <algorithm>

namespace renga {
namespace {

constexpr double kSteady = 0.75;     // Least rank correlation of a leak.
constexpr double kLoadGrows = 0.4;   // From here on the load is not equal.
constexpr double kSlowsDown = 0.5;   // Second half's rate over the first half's.
constexpr size_t kMedianPoints = 4;  // Beginning, middle and end are medians of so many.

double Median(std::span<double> values) {
  const size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half),
                   values.end());
  return values[half];
}

}  // namespace

std::optional<LeakDetector::Point> LeakDetector::Least::Add(const Point& next,
                                                            int enough) {
  if (count == 0 || next.bytes < point.bytes) point = next;
  if (++count < enough) return std::nullopt;
  count = 0;
  return point;
}

bool LeakDetector::History::Add(const Point& sample) {
  std::optional<Point> point = samples.Add(sample, kSamplesPerPoint);
  const bool completed = point.has_value();
  for (size_t i = 0; i < scales.size() && point; ++i) {
    Scale& scale = scales[i];
    if (scale.points.size() == kPoints) scale.points.erase(scale.points.begin());
    scale.points.push_back(*point);
    point = scale.least.Add(*point, kPointsPerPoint);
  }
  return completed;
}

void LeakDetector::Add(TimePoint now, const Load& load, int64_t bytes) {
  const Point sample = {
      .hours =
          std::chrono::duration<double, std::ratio<3600>>(now.time_since_epoch()).count(),
      .requests = static_cast<double>(load.requests),
      .bytes = static_cast<double>(bytes),
      .work = static_cast<double>(load.work)};
  const bool idle = load.work == 0;
  if (!(idle ? idle_ : busy_).Add(sample)) return;
  if (idle) {
    const Point& point = idle_.scales[0].points.back();
    if (!least_idle_ || point.bytes < least_idle_->bytes) least_idle_ = point;
  }
  Judge();
}

void LeakDetector::Restart() {
  idle_ = History();
  busy_ = History();
  least_idle_.reset();
  verdict_ = Verdict();
}

// Kendall's tau: pairs that rise less pairs that fall, over all pairs.
double LeakDetector::Correlation(std::span<const Point> points, double Point::*figure) {
  int rises = 0;
  int pairs = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = i + 1; j < points.size(); ++j) {
      const double change = points[j].*figure - points[i].*figure;
      rises += change > 0.0 ? 1 : change < 0.0 ? -1 : 0;
      ++pairs;
    }
  }
  return pairs == 0 ? 0.0 : static_cast<double>(rises) / pairs;
}

bool LeakDetector::GoesOn(std::span<const Point> points, double Point::*axis) {
  const auto median = [&](size_t first, double Point::*figure) {
    std::array<double, kMedianPoints> values{};
    for (size_t i = 0; i < values.size(); ++i) values[i] = points[first + i].*figure;
    return Median(values);
  };
  const size_t middle = (points.size() - kMedianPoints) / 2;
  const size_t end = points.size() - kMedianPoints;
  const double before = median(middle, axis) - median(0, axis);
  const double after = median(end, axis) - median(middle, axis);
  if (before <= 0.0 || after <= 0.0) return false;  // Nothing happened along this axis.
  const double grown = median(middle, &Point::bytes) - median(0, &Point::bytes);
  const double grows = median(end, &Point::bytes) - median(middle, &Point::bytes);
  return grows > 0.0 && grows / after >= kSlowsDown * grown / before;
}

// The median of the slopes of all pairs (Theil and Sen): outliers do not move it.
double LeakDetector::SlopePerHour(std::span<const Point> points) {
  std::array<double, kPoints*(kPoints - 1) / 2> slopes{};
  size_t count = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = i + 1; j < points.size(); ++j) {
      const double hours = points[j].hours - points[i].hours;
      if (hours > 0.0) slopes[count++] = (points[j].bytes - points[i].bytes) / hours;
    }
  }
  return count == 0 ? 0.0 : Median(std::span(slopes).first(count));
}

bool LeakDetector::IsGrowth(std::span<const Point> points) const {
  if (points.size() < kPoints) return false;
  const double grown = points.back().bytes - points.front().bytes;
  return grown > static_cast<double>(options_.tolerance_bytes) &&
         Correlation(points, &Point::bytes) >= kSteady &&
         Correlation(points, &Point::work) < kLoadGrows &&
         (GoesOn(points, &Point::requests) || GoesOn(points, &Point::hours));
}

void LeakDetector::Judge() {
  verdict_ = Verdict();
  for (const History* history : {&idle_, &busy_}) {
    for (size_t i = static_cast<size_t>(options_.first_scale); i < kScales; ++i) {
      const std::span<const Point> points = history->scales[i].points;
      if (!IsGrowth(points)) continue;
      verdict_.suspected = true;
      verdict_.bytes_per_hour = std::max(verdict_.bytes_per_hour, SlopePerHour(points));
    }
  }
  if (!verdict_.suspected && options_.step_bytes > 0) JudgeStep();
}

void LeakDetector::JudgeStep() {
  const std::vector<Point>& points = idle_.scales[0].points;
  if (points.size() < kPoints || !least_idle_) return;
  const Point& least =
      *std::min_element(points.begin(), points.end(),
                        [](const Point& a, const Point& b) { return a.bytes < b.bytes; });
  const double rise = least.bytes - least_idle_->bytes;
  if (rise <= static_cast<double>(options_.step_bytes)) return;
  verdict_.suspected = true;
  const double hours = points.back().hours - least_idle_->hours;
  verdict_.bytes_per_hour = hours > 0.0 ? rise / hours : 0.0;
}

}  // namespace renga
