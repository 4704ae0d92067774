#pragma once

#include "autograd/shape.h"
#include "kernels/matmul.h"
#include "tests/cuda/ops.h"

namespace athanor::test {

struct ProductOptions {
  Activation activation = Activation::none;
  Write write = Write::overwrite;
  bool bias = false;
  double tolerance = 0;  ///< 0: equal, but for the sign of a zero, which Eigen takes from the last product
};

/// y, which holds what it starts from, by the CPU's definition and by a kernel.
inline void check_product(MatmulImpl impl, const Tensor& a, const Tensor& b, const Tensor& y,
                          const ProductOptions& how = {}) {
  const Tensor bias = how.bias ? exact({{b.dim(-1)}}, a.dtype(), {9}) : Tensor();
  expect_as_on_cpu(
      [&](const auto& on) {
        const Tensor result = on(y);
        kernels::matmul(on.context, on.device.is_cpu() ? MatmulImpl::reference : impl, on(a), on(b), on(bias),
                        how.activation, result, how.write);
        return std::vector{result};
      },
      {how.tolerance});
}

/// matmul_add() by a kernel: alpha a b + beta c, c laid out like y. With numbers as of exact(), and factors
/// that are powers of two, only y is rounded.
inline void check_sum(MatmulImpl impl, const Tensor& a, const Tensor& b, const Tensor& c, bool in_place) {
  constexpr float kAlpha = 0.5f, kBeta = -2;
  const Tensor product = Tensor::empty(c.shape(), {wide_dtype(a.dtype()), kCpu});
  kernels::matmul(cpu_context(), MatmulImpl::reference, a, b, {}, Activation::none, product,
                  Write::overwrite);
  std::vector<double> sums = product.to_vector();
  const std::vector<double> added = c.to_vector();
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = kAlpha * sums[i] + kBeta * added[i];
  const Tensor c_on = on_device_like(c), y = in_place ? c_on : on_device_like(make({c.shape()}, c.dtype()));
  kernels::matmul_add(context(), impl, on_device_like(a), on_device_like(b), kAlpha, c_on, kBeta, y);
  const Tensor expected = cast(Tensor::from(sums, c.shape()), c.dtype());
  EXPECT_TRUE(close(on_cpu_like(y), expected, 0));
  EXPECT_TRUE(in_place || same_bits(on_cpu_like(c_on), c));
}

}  // namespace athanor::test
