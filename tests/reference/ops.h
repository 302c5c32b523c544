// The ops of a transformer in double precision, from their definitions, one plain loop
// each. They are the yardstick of every kernel and of the whole model: they share no code
// with them.
//
// Thread safety: plain functions.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace renga::reference {

using Vector = std::vector<double>;

struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  Vector values;  // [rows, cols]

  double At(int64_t row, int64_t col) const {
    return values[static_cast<size_t>(row * cols + col)];
  }
  Vector Row(int64_t row) const;
};

enum class Format { kF32, kF16, kQ4_1, kQ8_0 };

double HalfToDouble(uint16_t half);

// The values of a matrix as a model file stores it:
//   Q4_1, 32 values in 20 bytes: half d, half m, 16 bytes; value i = d * (low nibble of
//         byte i) + m, value i + 16 = d * (high nibble of byte i) + m
//   Q8_0, 32 values in 34 bytes: half d, 32 signed bytes; value i = d * byte i
Matrix Dequantise(Format format, const std::byte* data, int64_t rows, int64_t cols);

// y = W x
Vector MatVec(const Matrix& w, const Vector& x);

// x / sqrt(mean(x^2) + eps) * weight
Vector RmsNorm(const Vector& x, const Vector& weight, double eps);

// Rotates the pairs (x[2i], x[2i + 1]) of one head by position * inverse_frequencies[i];
// channels behind the last pair stay.
void RotateAdjacentPairs(double* head, const Vector& inverse_frequencies,
                         int64_t position);

// exp(x) / sum(exp(x))
Vector Softmax(const Vector& x);

// x / (1 + exp(-x))
double Silu(double x);

// sum_j softmax(q . k_j / sqrt(length of q))_j * v_j over all given keys.
Vector Attend(const Vector& q, const std::vector<Vector>& keys,
              const std::vector<Vector>& values);

}  // namespace renga::reference
