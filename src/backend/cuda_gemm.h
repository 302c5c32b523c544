// CudaGemm: Device::Gemm by cuBLASLt.
//
// The algorithm of a product is chosen once, for a fixed number of rows, without
// workspace and without splits of k: so that a row's sum has one order, whatever else is
// in the batch.
//
// Thread rule: the device's.

#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <map>

#include "backend/device.h"
#include "renga/status.h"

namespace renga {

class CudaGemm {
 public:
  CudaGemm() = default;
  ~CudaGemm();
  CudaGemm(const CudaGemm&) = delete;
  CudaGemm& operator=(const CudaGemm&) = delete;

  // The GPU is the calling thread's current one.
  Status Open();
  Status Run(const GemmShape& shape, cudaStream_t stream);

 private:
  // Everything of a GemmShape that an algorithm depends on, but the rows.
  struct Key {
    int32_t outputs = 0;
    int32_t cols = 0;
    int64_t weights_stride = 0;
    int64_t x_stride = 0;
    int64_t out_stride = 0;
    uint32_t weights_alignment = 0;
    uint32_t x_alignment = 0;
    uint32_t out_alignment = 0;

    auto operator<=>(const Key&) const = default;
  };
  struct Problem;

  static Key KeyOf(const GemmShape& shape);
  StatusOr<const cublasLtMatmulAlgo_t*> PinnedAlgorithm(const Key& key);
  StatusOr<cublasLtMatmulAlgo_t> ChooseAlgorithm(const Key& key);

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace renga
