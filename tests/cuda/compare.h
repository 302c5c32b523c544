// What a kernel wrote against what it should have: values within a bound, bytes alike,
// and nothing at all elsewhere.
//
// Thread safety: plain functions.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/block_format.h"
#include "tests/cuda/device_case.h"

namespace renga::test {

// Where an expected value stands for "not written": all bits are 1, as DeviceBuffer
// leaves them.
inline constexpr double kUntouched = std::numeric_limits<double>::quiet_NaN();

inline double ValueOf(uint16_t half) { return static_cast<double>(F16ToF32(half)); }
inline double ValueOf(float value) { return static_cast<double>(value); }

// T: uint16_t (f16) or float.
template <class T>
CheckResult CompareValues(std::string name, const DeviceBuffer<T>& buffer,
                          const std::vector<double>& expected, double bound) {
  CheckResult result{.name = std::move(name), .bound = bound};
  if (!buffer.GuardsIntact()) result.detail = "written outside the buffer";
  const std::vector<T> all = buffer.Download();
  T untouched;
  std::memset(&untouched, 0xff, sizeof(T));
  std::vector<double> got;
  std::vector<double> wanted;
  double worst = 0.0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(expected[i])) {
      if (std::memcmp(&all[i], &untouched, sizeof(T)) != 0) {
        result.detail = "written where nothing should be: " + std::to_string(i);
      }
      continue;
    }
    got.push_back(ValueOf(all[i]));
    wanted.push_back(expected[i]);
    const double error = std::abs(got.back() - wanted.back());
    if (!(error <= worst) && result.detail.empty()) {
      worst = error;
      if (!(error <= bound * std::max(1.0, std::abs(wanted.back())) * 100)) {
        result.detail = "far off: " + std::to_string(i);
      }
    }
  }
  result.error = RelativeError(got, wanted);
  result.ok = result.error <= bound && result.detail.empty();
  return result;
}

// error: how many elements differ.
template <class T>
CheckResult CompareBits(std::string name, const DeviceBuffer<T>& buffer,
                        const std::vector<T>& expected) {
  CheckResult result{.name = std::move(name)};
  if (!buffer.GuardsIntact()) result.detail = "written outside the buffer";
  const std::vector<T> got = buffer.Download();
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&got[i], &expected[i], sizeof(T)) == 0) continue;
    if (result.error++ == 0) result.detail = "first at " + std::to_string(i);
  }
  result.ok = result.error == 0 && result.detail.empty();
  return result;
}

}  // namespace renga::test
