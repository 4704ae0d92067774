#pragma once

#include <cstdint>
#include <optional>

#include "kernels/cuda/conv_plan.h"
#include "tensor/tensor.h"

namespace athanor::cuda {

/// A batch of products y[i] = a[i] b[i] over plain matrices: a [m, k], b [k, n], y [m, n] with dense rows.
struct GemmLayout {
  /// A matrix with dense rows, `ld` elements from one to the next; the rows are the operand's columns where
  /// it is transposed.
  struct Operand {
    bool transposed = false;
    std::int64_t ld = 1;
    std::int64_t batch_stride = 0;  ///< in elements; 0 where every product takes the same matrix

    bool operator==(const Operand&) const = default;
  };

  std::int64_t m = 1, n = 1, k = 1, batch = 1;
  Operand a, b;  // y's are n and m n

  bool operator==(const GemmLayout&) const = default;
};

/// How kernels::matmul's operands read as such a batch, or nothing where they do not. Leading axes become
/// rows where b has one matrix for all of them, a longer k where the result is summed over them, and a batch
/// with one stride otherwise. No tensor may be empty.
std::optional<GemmLayout> gemm_layout(const Tensor& a, const Tensor& b, const Tensor& y);

/// A pass of a 1 x 1 convolution over images of `pixels` in all as one product: y [pixels, k] = x [pixels, c]
/// w [k, c]^T, dx = dy w, or dw = dy^T x.
GemmLayout pointwise_layout(ConvPass pass, std::int64_t pixels, std::int64_t c, std::int64_t k);

}  // namespace athanor::cuda
