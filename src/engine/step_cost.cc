#include "engine/step_cost.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace renga {
namespace {

// Where the slope of b changes. Below the first, weights are streamed for few rows; the
// last ones are where a device that computes many rows at once begins to be full.
constexpr std::array<int64_t, 3> kBends = {8, 64, 512};
constexpr size_t kSlopes = kBends.size() + 1;

// The terms: a, the slopes of b, c, d.
constexpr size_t kFirstSlope = 1;
constexpr size_t kLogits = kFirstSlope + kSlopes;
constexpr size_t kAttended = kLogits + 1;
constexpr size_t kTerms = kAttended + 1;
using Terms = std::array<double, kTerms>;

// Steps of like size: rows in (2^(k-1), 2^k]; the last takes all the larger ones.
constexpr size_t kSizes = 14;

constexpr double kKeep = 0.95;        // Weight of a step after one more of like size.
constexpr double kSpeedGain = 0.5;    // Of a step's error that `speed` takes over...
constexpr double kMostError = 0.5;    // ... of which no more than this counts (log).
constexpr double kLeastScale = 0.25;  // Of what was expected; see Add.
constexpr double kSpeedShare = 0.8;   // Of `speed` (log) that the fit leaves aside.
constexpr double kSlopePull = 0.05;   // Of a slope towards the one before it.
constexpr int kSweeps = 3;

Terms TermsOf(const StepShape& shape) {
  Terms x{};
  x[0] = 1.0;
  int64_t from = 0;
  for (size_t i = 0; i < kSlopes; ++i) {
    const int64_t to = i < kBends.size() ? kBends[i] : shape.rows;
    x[kFirstSlope + i] =
        static_cast<double>(std::max<int64_t>(0, std::min(shape.rows, to) - from));
    from = to;
  }
  x[kLogits] = static_cast<double>(shape.logit_rows);
  x[kAttended] = static_cast<double>(shape.attended);
  return x;
}

double Dot(const Terms& a, const Terms& b) {
  double sum = 0.0;
  for (size_t i = 0; i < kTerms; ++i) sum += a[i] * b[i];
  return sum;
}

// Weighted sums over steps: products of their terms, and of terms and time.
struct Sums {
  std::array<Terms, kTerms> products{};
  Terms times{};
};

}  // namespace

struct StepCost::Impl {
  // Without `speed`, in nanoseconds.
  double Fitted(const StepShape& shape) const;
  void Accumulate(const Terms& x, size_t size, double time, double weight);
  void Solve();

  std::array<Sums, kSizes> by_size{};
  Terms terms{};  // What is fitted.
  double speed = 1.0;
  int64_t added = 0;
  int64_t most_rows = 0;  // Of a step measured.
};

StepCost::StepCost() : impl_(std::make_unique<Impl>()) {}
StepCost::~StepCost() = default;

double StepCost::Impl::Fitted(const StepShape& shape) const {
  const Terms x = TermsOf(shape);
  const double fitted = Dot(x, terms);
  if (shape.rows <= most_rows) return fitted;
  // In proportion to the rows, if the slopes say less.
  const double measured = Dot(TermsOf({.rows = most_rows}), terms);
  const double grown =
      measured * static_cast<double>(shape.rows) / static_cast<double>(most_rows);
  return std::max(fitted,
                  grown + x[kLogits] * terms[kLogits] + x[kAttended] * terms[kAttended]);
}

void StepCost::Add(const StepShape& shape, Duration elapsed) {
  if (shape.rows < 1 || elapsed.count() < 1) return;
  Impl& impl = *impl_;
  const double time = static_cast<double>(elapsed.count());
  const double fitted = impl.added > 0 ? impl.Fitted(shape) : 0.0;
  const double error = fitted > 0.0 ? std::log(time / (fitted * impl.speed)) : 0.0;
  // Part of the present speed stays in the fit, which thereby follows a lasting change.
  const double usual = time / std::pow(impl.speed, kSpeedShare);
  // Errors relative to what a step took; to no less than kLeastScale of what was
  // expected, or else a step that looks far too short would outweigh all others.
  const double scale = std::max(usual, kLeastScale * fitted);
  const size_t size =
      static_cast<size_t>(std::bit_width(static_cast<uint64_t>(shape.rows - 1)));
  impl.Accumulate(TermsOf(shape), std::min(size, kSizes - 1), usual,
                  1.0 / (scale * scale));
  impl.Solve();
  impl.speed *= std::exp(kSpeedGain * std::clamp(error, -kMostError, kMostError));
  impl.most_rows = std::max(impl.most_rows, shape.rows);
  ++impl.added;
}

void StepCost::Impl::Accumulate(const Terms& x, size_t size, double time, double weight) {
  Sums& sums = by_size[size];
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) {
      sums.products[i][j] = kKeep * sums.products[i][j] + weight * x[i] * x[j];
    }
    sums.times[i] = kKeep * sums.times[i] + weight * x[i] * time;
  }
}

// Some sweeps of coordinate descent from where the last ones ended: each term in turn
// takes its best value that is not negative.
void StepCost::Impl::Solve() {
  Sums all;
  for (const Sums& sums : by_size) {
    if (sums.products[0][0] == 0.0) continue;  // No step had such a size.
    for (size_t i = 0; i < kTerms; ++i) {
      for (size_t j = 0; j < kTerms; ++j) all.products[i][j] += sums.products[i][j];
      all.times[i] += sums.times[i];
    }
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (size_t i = 0; i < kTerms; ++i) {
      double square = all.products[i][i];
      if (square <= 0.0) continue;  // No step had this term.
      double rest =
          all.times[i] - Dot(all.products[i], terms) + all.products[i][i] * terms[i];
      if (i > kFirstSlope && i < kLogits) {
        rest += kSlopePull * square * terms[i - 1];
        square *= 1.0 + kSlopePull;
      }
      terms[i] = std::max(0.0, rest / square);
    }
  }
}

Duration StepCost::Predict(const StepShape& shape) const {
  if (impl_->added == 0) return Duration{};
  constexpr double kLongest = 1e18;  // Nanoseconds; fits an integer.
  const double predicted = impl_->Fitted(shape) * impl_->speed;
  return Duration(std::llround(std::clamp(predicted, 1.0, kLongest)));
}

int64_t StepCost::RowsWithin(Duration limit, const StepShape& shape, int64_t position,
                             int64_t most, bool scored) const {
  if (impl_->added == 0) return most;
  const auto fits = [&](int64_t rows) {
    const StepShape with{.rows = shape.rows + rows,
                         .logit_rows = shape.logit_rows + (scored ? rows : 1),
                         .attended = shape.attended + AttendedBy(position, rows)};
    return Predict(with) <= limit;
  };
  int64_t low = 1, high = std::max<int64_t>(1, most);
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace renga
