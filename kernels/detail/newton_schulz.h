#pragma once

#include <array>

#include "kernels/matmul.h"

// newton_schulz() of kernels/muon.h, as products of matrices.

namespace athanor::kernels::detail {

/// x [matrices, rows, columns] and its transpose: `wide` has as many rows as the shorter side.
struct Oriented {
  explicit Oriented(const Tensor& x)
      : is_tall(x.dim(1) > x.dim(2)),
        mirror(x.view_as_strided({x.dim(0), x.dim(2), x.dim(1)}, {x.dim(1) * x.dim(2), 1, x.dim(2)}, 0)),
        wide(is_tall ? mirror : x),
        tall(is_tall ? x : mirror) {}

  bool is_tall;
  Tensor mirror, wide, tall;
};

template <class Context> void multiply(Context& context, const Tensor& a, const Tensor& b, const Tensor& y) {
  matmul(context, MatmulImpl::automatic, a, b, {}, Activation::none, y, Write::overwrite);
}

/// On a GPU, where a product also adds: A, B = b A + c A^2, next = a x + B x. Three launches.
template <class Context>
void newton_schulz_by_sums(Context& context, const Tensor& x, const std::array<float, 3>& coefficients,
                           const Tensor& gram, const Tensor& factor, const Tensor& next) {
  const auto [a, b, c] = coefficients;
  const Oriented from(x);
  multiply(context, from.wide, from.tall, gram);
  matmul_add(context, MatmulImpl::automatic, gram, gram, c, gram, b, factor);
  matmul_add(context, MatmulImpl::automatic, from.is_tall ? x : factor, from.is_tall ? factor : x, 1, x, a,
             next);
}

}  // namespace athanor::kernels::detail
