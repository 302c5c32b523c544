// Finds a loaded matrix or vector by the id that a step names, and checks its size, which
// is not trusted. For every backend: Matrix has rows() and cols().
//
// Thread safety: plain functions.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

// InvalidArgument with `what`: none is loaded under the id, or it has another shape.
template <class Matrix>
StatusOr<const Matrix*> FindLoaded(const std::vector<Matrix>& matrices, MatrixId id,
                                   int64_t rows, int64_t cols, const char* what) {
  const int64_t index = static_cast<int64_t>(id) - 1;
  if (index < 0 || index >= static_cast<int64_t>(matrices.size())) {
    return InvalidArgument(what, "no such matrix is loaded");
  }
  const Matrix& matrix = matrices[static_cast<size_t>(index)];
  if (matrix.rows() == rows && matrix.cols() == cols) return &matrix;
  return InvalidArgument(what, "the matrix is " + std::to_string(matrix.rows()) + " x " +
                                   std::to_string(matrix.cols()) + ", not " +
                                   std::to_string(rows) + " x " + std::to_string(cols));
}

// The same for a vector: something with data() and size().
template <class Vector>
StatusOr<const float*> FindLoaded(const std::vector<Vector>& vectors, VectorId id,
                                  int64_t size, const char* what) {
  const int64_t index = static_cast<int64_t>(id) - 1;
  if (index < 0 || index >= static_cast<int64_t>(vectors.size())) {
    return InvalidArgument(what, "no such vector is loaded");
  }
  const Vector& vector = vectors[static_cast<size_t>(index)];
  if (static_cast<int64_t>(vector.size()) == size) return vector.data();
  return InvalidArgument(what, "the vector has " + std::to_string(vector.size()) +
                                   " values, not " + std::to_string(size));
}

}  // namespace renga
