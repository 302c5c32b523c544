#include "engine/step_cost.h"

#include <algorithm>
#include <array>

namespace renga {
namespace {

constexpr size_t kSamples = 32;

// The middle one of values[0..count).
template <class Array>
double Median(Array& values, size_t count) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(values.begin(), middle,
                   values.begin() + static_cast<std::ptrdiff_t>(count));
  return *middle;
}

}  // namespace

struct StepCost::Impl {
  struct Sample {
    int64_t rows = 0;
    int64_t nanoseconds = 0;
  };

  void Fit();

  std::array<Sample, kSamples> samples{};
  std::array<double, kSamples*(kSamples - 1) / 2> scratch{};
  size_t added = 0;
  double base = 0.0;
  double per_row = 0.0;
};

StepCost::StepCost() : impl_(std::make_unique<Impl>()) {}
StepCost::~StepCost() = default;

void StepCost::Add(const StepShape& shape, Duration elapsed) {
  impl_->samples[impl_->added % kSamples] = {.rows = shape.rows,
                                             .nanoseconds = elapsed.count()};
  ++impl_->added;
  if (impl_->added % 8 == 0 || impl_->added == 1) impl_->Fit();
}

void StepCost::Impl::Fit() {
  const size_t count = std::min<size_t>(added, kSamples);
  size_t slopes = 0;
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i + 1; j < count; ++j) {
      const int64_t rows = samples[j].rows - samples[i].rows;
      if (rows == 0) continue;
      scratch[slopes++] =
          static_cast<double>(samples[j].nanoseconds - samples[i].nanoseconds) /
          static_cast<double>(rows);
    }
  }
  // All steps had the same number of rows: the slope known from before still holds.
  if (slopes > 0) per_row = std::max(0.0, Median(scratch, slopes));
  for (size_t i = 0; i < count; ++i) {
    scratch[i] = static_cast<double>(samples[i].nanoseconds) -
                 per_row * static_cast<double>(samples[i].rows);
  }
  base = std::max(0.0, Median(scratch, count));
}

Duration StepCost::Predict(const StepShape& shape) const {
  return Duration(static_cast<int64_t>(impl_->base +
                                       impl_->per_row * static_cast<double>(shape.rows)));
}

int64_t StepCost::RowsWithin(Duration limit, const StepShape& shape, int64_t /*position*/,
                             int64_t most) const {
  if (impl_->per_row <= 0.0) return most;
  const double left = static_cast<double>((limit - Predict(shape)).count());
  return std::clamp<int64_t>(static_cast<int64_t>(left / impl_->per_row), 1, most);
}

}  // namespace renga
