#include "tests/reference/ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace renga::reference {
namespace {

template <class T>
T Load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

double LoadHalf(const std::byte* data) { return HalfToDouble(Load<uint16_t>(data)); }

// Value `index` of a row that starts at `row`.
double Element(Format format, const std::byte* row, int64_t index) {
  const int64_t block = index / 32;
  const int64_t i = index % 32;
  switch (format) {
    case Format::kF32:
      return Load<float>(row + 4 * index);
    case Format::kF16:
      return LoadHalf(row + 2 * index);
    case Format::kQ4_1: {
      const std::byte* start = row + 20 * block;
      const auto packed = Load<uint8_t>(start + 4 + i % 16);
      const int code = i < 16 ? packed % 16 : packed / 16;
      return LoadHalf(start) * code + LoadHalf(start + 2);
    }
    case Format::kQ8_0: {
      const std::byte* start = row + 34 * block;
      return LoadHalf(start) * Load<int8_t>(start + 2 + i);
    }
  }
  return 0.0;
}

int64_t RowBytes(Format format, int64_t cols) {
  switch (format) {
    case Format::kF32:
      return cols * 4;
    case Format::kF16:
      return cols * 2;
    case Format::kQ4_1:
      return cols / 32 * 20;
    case Format::kQ8_0:
      return cols / 32 * 34;
  }
  return 0;
}

}  // namespace

Vector Matrix::Row(int64_t row) const {
  Vector result;
  for (int64_t col = 0; col < cols; ++col) result.push_back(At(row, col));
  return result;
}

double HalfToDouble(uint16_t half) {
  const int sign = (half >> 15) != 0 ? -1 : 1;
  const int exponent = (half >> 10) % 32;
  const int mantissa = half % 1024;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  if (exponent == 31) return mantissa != 0 ? double{NAN} : sign * double{INFINITY};
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

Matrix Dequantise(Format format, const std::byte* data, int64_t rows, int64_t cols) {
  Matrix matrix{.rows = rows, .cols = cols, .values = {}};
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* start = data + row * RowBytes(format, cols);
    for (int64_t col = 0; col < cols; ++col) {
      matrix.values.push_back(Element(format, start, col));
    }
  }
  return matrix;
}

Vector MatVec(const Matrix& w, const Vector& x) {
  Vector y(static_cast<size_t>(w.rows), 0.0);
  for (int64_t row = 0; row < w.rows; ++row) {
    for (int64_t col = 0; col < w.cols; ++col) {
      y[static_cast<size_t>(row)] += w.At(row, col) * x[static_cast<size_t>(col)];
    }
  }
  return y;
}

Vector RmsNorm(const Vector& x, const Vector& weight, double eps) {
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  Vector y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * scale * weight[i]);
  return y;
}

void RotateAdjacentPairs(double* head, const Vector& inverse_frequencies,
                         int64_t position) {
  for (size_t i = 0; i < inverse_frequencies.size(); ++i) {
    const double angle = static_cast<double>(position) * inverse_frequencies[i];
    const double a = head[2 * i];
    const double b = head[2 * i + 1];
    head[2 * i] = a * std::cos(angle) - b * std::sin(angle);
    head[2 * i + 1] = a * std::sin(angle) + b * std::cos(angle);
  }
}

Vector Softmax(const Vector& x) {
  const double largest = *std::max_element(x.begin(), x.end());
  Vector y;
  double sum = 0.0;
  for (const double value : x) {
    y.push_back(std::exp(value - largest));
    sum += y.back();
  }
  for (double& value : y) value /= sum;
  return y;
}

double Silu(double x) { return x / (1.0 + std::exp(-x)); }

Vector Attend(const Vector& q, const std::vector<Vector>& keys,
              const std::vector<Vector>& values) {
  Vector scores;
  for (const Vector& key : keys) {
    double dot = 0.0;
    for (size_t i = 0; i < q.size(); ++i) dot += q[i] * key[i];
    scores.push_back(dot / std::sqrt(static_cast<double>(q.size())));
  }
  const Vector weights = Softmax(scores);
  Vector output(values[0].size(), 0.0);
  for (size_t j = 0; j < values.size(); ++j) {
    for (size_t i = 0; i < output.size(); ++i) output[i] += weights[j] * values[j][i];
  }
  return output;
}

}  // namespace renga::reference
