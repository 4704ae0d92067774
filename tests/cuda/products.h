#pragma once

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

}  // namespace athanor::test
