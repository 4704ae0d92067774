#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <cublasLt.h>

#include "kernels/activation.h"
#include "kernels/cuda/gemm_layout.h"
#include "tensor/base/status.h"

// Matrix products by cuBLASLt, which is column-major: it is handed y^T = b^T a^T, whose matrices are ours in
// memory.

namespace athanor {

template <> struct detail::StatusTraits<cublasStatus_t> {
  static constexpr const char* library = "cuBLASLt";
  static bool ok(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; }
  static std::string text(cublasStatus_t status) { return cublasLtGetStatusString(status); }
};

namespace cublas {

/// All that decides which algorithm fits.
struct MatmulSignature {
  cuda::GemmLayout layout;
  DType in = DType::f32;    ///< of a and b
  DType out = DType::f32;   ///< of y: that of `in`, or f32; sums are f32 (f64 for f64)
  bool bias = false;        ///< [n], of y's dtype, added before y is rounded
  bool accumulate = false;  ///< beta c is added, which may be y's own values
  bool tf32 = false, deterministic = false;
  // What kernels of ours do to y then, which does not change the algorithm, but what is faster.
  Activation after = Activation::none;
  bool bias_after = false;  ///< first the bias, where it is not in cuBLASLt's power
  /// Of the addresses of a, b, y (and c) and bias, in bytes: a power of two, at most 256.
  std::array<std::int64_t, 4> alignment{256, 256, 256, 256};
  std::size_t workspace_bytes = std::size_t{32} << 20;

  bool operator==(const MatmulSignature&) const = default;
  std::size_t hash() const;
  std::string str() const;
};

/// What a product reads and writes: y = alpha a b + bias + beta c, the last two if the signature has them.
struct Operands {
  const void *a, *b, *bias = nullptr;
  const void* c = nullptr;  ///< laid out like y, or y itself
  void* y;
  float alpha = 1, beta = 1;
};

struct Algorithm {
  cublasLtMatmulAlgo_t native{};
  std::size_t workspace_bytes = 0;
};

/// cublasLtHandle_t of the current device, owned.
class Handle {
 public:
  Handle();
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cublasLtHandle_t native() const { return native_; }

 private:
  cublasLtHandle_t native_ = nullptr;
};

/// cublasLtGetVersion().
std::int64_t version();

/// Up to `most` algorithms, cuBLASLt's favourite first; empty where it has none. Partial sums of a split k
/// are added in f32, in a fixed order.
std::vector<Algorithm> propose(const Handle& handle, const MatmulSignature& signature, std::size_t most);

/// An algorithm as text, and back: nothing where this version of the library cannot run it for the signature.
std::string write(const Algorithm& algorithm);
std::optional<Algorithm> read(const Handle& handle, const MatmulSignature& signature, std::string_view text);

/// Queues it on a stream (cudaStream_t). `workspace` has the algorithm's bytes.
void run(const Handle& handle, const MatmulSignature& signature, const Algorithm& algorithm,
         const Operands& at, void* workspace, void* stream);

}  // namespace cublas
}  // namespace athanor
