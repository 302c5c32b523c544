// See cuda_gemm.h.

#include "backend/cuda_gemm.h"

#include <array>
#include <string>

#include "base/status_macros.h"

namespace renga {

namespace {

// The rows that a product's algorithm is chosen for. One for all counts: else a row's
// last bits would depend on how many there are.
constexpr int32_t kGemmRows = 512;
constexpr int kGemmCandidates = 32;

// The largest power of two, up to 16, that divides the address and the stride.
uint32_t AlignmentOf(const void* start, int64_t stride_bytes) {
  const uint64_t bits =
      reinterpret_cast<uintptr_t>(start) | static_cast<uint64_t>(stride_bytes) | 16;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

Status Failed(cublasStatus_t status, const char* doing) {
  return Internal(std::string(doing) + ": " + cublasLtGetStatusName(status));
}

}  // namespace

// cuBLASLt counts by columns: out^T [outputs, rows] = weights^T . x^T, of matrices that
// lie in memory as [cols, outputs] and [cols, rows].
struct CudaGemm::Problem {
  cublasLtMatmulDescOpaque_t product{};
  cublasLtMatrixLayoutOpaque_t weights{};
  cublasLtMatrixLayoutOpaque_t x{};
  cublasLtMatrixLayoutOpaque_t out{};

  bool Describe(const Key& key, int32_t rows) {
    const auto outputs = static_cast<uint64_t>(key.outputs);
    const auto cols = static_cast<uint64_t>(key.cols);
    const auto width = static_cast<uint64_t>(rows);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const auto ok = [](cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; };
    return ok(cublasLtMatmulDescInit(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
           ok(cublasLtMatmulDescSetAttribute(&product, CUBLASLT_MATMUL_DESC_TRANSA,
                                             &transposed, sizeof transposed)) &&
           ok(cublasLtMatrixLayoutInit(&weights, CUDA_R_16F, cols, outputs,
                                       key.weights_stride)) &&
           ok(cublasLtMatrixLayoutInit(&x, CUDA_R_16F, cols, width, key.x_stride)) &&
           ok(cublasLtMatrixLayoutInit(&out, CUDA_R_32F, outputs, width, key.out_stride));
  }
};

CudaGemm::~CudaGemm() {
  if (handle_ != nullptr) static_cast<void>(cublasLtDestroy(handle_));
}

Status CudaGemm::Open() {
  const cublasStatus_t status = cublasLtCreate(&handle_);
  return status == CUBLAS_STATUS_SUCCESS ? OkStatus()
                                         : Failed(status, "the start of cuBLASLt");
}

CudaGemm::Key CudaGemm::KeyOf(const GemmShape& shape) {
  return {.outputs = shape.outputs,
          .cols = shape.cols,
          .weights_stride = shape.weights_stride,
          .x_stride = shape.x_stride,
          .out_stride = shape.out_stride,
          .weights_alignment = AlignmentOf(shape.weights, 2 * shape.weights_stride),
          .x_alignment = AlignmentOf(shape.x, 2 * shape.x_stride),
          .out_alignment = AlignmentOf(shape.out, 4 * shape.out_stride)};
}

StatusOr<cublasLtMatmulAlgo_t> CudaGemm::ChooseAlgorithm(const Key& key) {
  Problem problem;
  cublasLtMatmulPreferenceOpaque_t wish{};
  if (!problem.Describe(key, kGemmRows) ||
      cublasLtMatmulPreferenceInit(&wish) != CUBLAS_STATUS_SUCCESS) {
    return Internal("cuBLASLt refuses the layouts of a product");
  }
  // No workspace and no reduction: so that no algorithm sums parts of k apart.
  const uint64_t workspace = 0;
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE;
  const auto set = [&wish](cublasLtMatmulPreferenceAttributes_t which,
                           const auto& value) {
    return cublasLtMatmulPreferenceSetAttribute(&wish, which, &value, sizeof value) ==
           CUBLAS_STATUS_SUCCESS;
  };
  if (!set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace) ||
      !set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions) ||
      !set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.weights_alignment) ||
      !set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.x_alignment) ||
      !set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.out_alignment) ||
      !set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.out_alignment)) {
    return Internal("cuBLASLt refuses the wishes for a product");
  }
  std::array<cublasLtMatmulHeuristicResult_t, kGemmCandidates> found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, &problem.product, &problem.weights, &problem.x, &problem.out, &problem.out,
      &wish, kGemmCandidates, found.data(), &count);
  if (status != CUBLAS_STATUS_SUCCESS) return Failed(status, "choosing a product");
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = found[static_cast<size_t>(i)];
    if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize != 0) continue;
    int32_t splits = 1;  // It stays so where an algorithm does not know the word.
    static_cast<void>(cublasLtMatmulAlgoConfigGetAttribute(
        &result.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits, nullptr));
    if (splits <= 1) return result.algo;
  }
  return Internal("cuBLASLt has no algorithm that sums in one order for a product of " +
                  std::to_string(key.outputs) + " outputs over " +
                  std::to_string(key.cols) + " columns");
}

StatusOr<const cublasLtMatmulAlgo_t*> CudaGemm::PinnedAlgorithm(const Key& key) {
  auto found = algorithms_.find(key);
  if (found == algorithms_.end()) {
    RENGA_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t chosen, ChooseAlgorithm(key));
    found = algorithms_.emplace(key, chosen).first;
  }
  return &found->second;
}

Status CudaGemm::Run(const GemmShape& shape, cudaStream_t stream) {
  if (shape.rows <= 0 || shape.outputs <= 0 || shape.cols <= 0) {
    return InvalidArgument("shape", "a product has rows, outputs and columns");
  }
  const Key key = KeyOf(shape);
  RENGA_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t* algorithm, PinnedAlgorithm(key));
  Problem problem;
  if (!problem.Describe(key, shape.rows)) {
    return Internal("cuBLASLt refuses the layouts of a product");
  }
  const float one = 1.0f;
  const float old = shape.add ? 1.0f : 0.0f;
  const cublasStatus_t status =
      cublasLtMatmul(handle_, &problem.product, &one, shape.weights, &problem.weights,
                     shape.x, &problem.x, &old, shape.out, &problem.out, shape.out,
                     &problem.out, algorithm, nullptr, 0, stream);
  return status == CUBLAS_STATUS_SUCCESS ? OkStatus()
                                         : Failed(status, "a product of cuBLASLt");
}

}  // namespace renga
