#include "engine/step_cost.h"

#include <algorithm>

namespace renga {
namespace {

// The middle one of values[0..count).
template <class Array>
double Median(Array& values, size_t count) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(values.begin(), middle,
                   values.begin() + static_cast<std::ptrdiff_t>(count));
  return *middle;
}

}  // namespace

void StepCost::Add(int64_t rows, Duration elapsed) {
  samples_[added_ % kSamples] = {.rows = rows, .nanoseconds = elapsed.count()};
  ++added_;
  if (added_ % 8 == 0 || added_ == 1) Fit();
}

void StepCost::Fit() {
  const size_t count = std::min<size_t>(added_, kSamples);
  size_t slopes = 0;
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i + 1; j < count; ++j) {
      const int64_t rows = samples_[j].rows - samples_[i].rows;
      if (rows == 0) continue;
      scratch_[slopes++] =
          static_cast<double>(samples_[j].nanoseconds - samples_[i].nanoseconds) /
          static_cast<double>(rows);
    }
  }
  // All steps had the same number of rows: the slope known from before still holds.
  double slope = static_cast<double>(per_row_.count());
  if (slopes > 0) slope = std::max(0.0, Median(scratch_, slopes));
  for (size_t i = 0; i < count; ++i) {
    scratch_[i] = static_cast<double>(samples_[i].nanoseconds) -
                  slope * static_cast<double>(samples_[i].rows);
  }
  base_ = Duration(static_cast<int64_t>(std::max(0.0, Median(scratch_, count))));
  per_row_ = Duration(static_cast<int64_t>(slope));
}

}  // namespace renga
