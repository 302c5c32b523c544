#include "metrics/sliding_quantiles.h"

#include <algorithm>
#include <cmath>

namespace renga {
namespace {

constexpr double kLeast = 1e-5;  // Seconds: the upper end of bin 0.
constexpr double kRatio = 1.05;
constexpr double kMost = 600.0;

// Bin i > 0 holds the values in (kLeast * kRatio^(i - 1), kLeast * kRatio^i].
size_t BinOf(double seconds) {
  if (!(seconds > kLeast)) return 0;
  return static_cast<size_t>(
      std::ceil(std::log(std::min(seconds, kMost) / kLeast) / std::log(kRatio)));
}

// The middle of a bin, as a factor to both its ends.
double ValueOf(size_t bin) {
  return kLeast * std::pow(kRatio, static_cast<double>(bin) - (bin == 0 ? 0.0 : 0.5));
}

}  // namespace

SlidingQuantiles::SlidingQuantiles() {
  const size_t bins = BinOf(kMost) + 1;
  for (Slice& slice : slices_) slice.counts.resize(bins);
  merged_.resize(bins);
}

int64_t SlidingQuantiles::NumberOf(TimePoint now) {
  return std::max<int64_t>(now.time_since_epoch() / kSlice, 0);
}

void SlidingQuantiles::Observe(Duration value, TimePoint now) {
  const int64_t number = NumberOf(now);
  Slice& slice = slices_[static_cast<size_t>(number % kSlices)];
  if (number < slice.number) return;  // Older than the window.
  if (number > slice.number) {
    std::fill(slice.counts.begin(), slice.counts.end(), 0U);
    slice.number = number;
  }
  newest_ = std::max(newest_, number);
  ++slice.counts[BinOf(std::chrono::duration<double>(value).count())];
}

void SlidingQuantiles::Quantiles(TimePoint now, std::span<const double> q,
                                 std::span<double> seconds) {
  const int64_t number = std::max(newest_, NumberOf(now));
  std::fill(merged_.begin(), merged_.end(), 0U);
  uint64_t total = 0;
  for (const Slice& slice : slices_) {
    if (slice.number < 0 || slice.number <= number - kSlices) continue;
    for (size_t bin = 0; bin < merged_.size(); ++bin) {
      merged_[bin] += slice.counts[bin];
      total += slice.counts[bin];
    }
  }
  for (size_t i = 0; i < q.size(); ++i) {
    seconds[i] = 0.0;
    if (total == 0) continue;
    const auto rank = static_cast<uint64_t>(std::clamp(
        std::ceil(q[i] * static_cast<double>(total)), 1.0, static_cast<double>(total)));
    uint64_t below = 0;
    size_t bin = 0;
    while ((below += merged_[bin]) < rank) ++bin;
    seconds[i] = ValueOf(bin);
  }
}

}  // namespace renga
