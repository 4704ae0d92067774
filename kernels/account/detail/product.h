#pragma once

#include "kernels/account/context.h"
#include "kernels/account/detail/cost.h"
#include "kernels/account/flops.h"
#include "kernels/cuda/gemm_plan.h"

namespace athanor::account {

/// A product of our own (kernels/cuda/gemm.h).
struct Product {
  const char* kernel;
  DType dtype;  ///< of the factors
  cuda::GemmShape shape;
  std::int64_t read;           ///< bytes of both factors
  std::int64_t once_read = 0;  ///< of the bias, and of what is added
  std::int64_t shared = 0;     ///< of that, bytes that are a factor's
  std::int64_t written;        ///< of y
};

/// Tiles are fetched more than once, mostly from the cache: factors count once. Where the depth is cut, the
/// pieces go through memory and a second kernel adds them up.
inline void add_product(AccountContext& context, const Product& z) {
  const cuda::GemmShape& y = z.shape;
  const std::int64_t partial = cuda::GemmPlan(y, size(z.dtype)).partial_bytes;
  context.add({.kernel = z.kernel,
               .bytes_read = z.read + (partial > 0 ? 0 : z.once_read - z.shared),
               .bytes_written = partial > 0 ? partial : z.written,
               .flops = product_flops(y.m * y.n * y.batches * y.summed, y.k),
               .dtype = z.dtype});
  if (partial > 0) launch(context, z.kernel, partial + z.once_read, z.written);
}

}  // namespace athanor::account
