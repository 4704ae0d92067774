#pragma once

#include "kernels/activation.h"
#include "kernels/impl.h"
#include "tensor/tensor.h"

namespace athanor {

/// Matrix product. a [..., M, K], b [..., K, N] -> [..., M, N]; leading axes broadcast. Rank-1 operands act
/// as a row (a) or a column (b), and that axis is dropped. One floating dtype; accumulates in f32 (f64 for
/// f64).
Tensor matmul(const Tensor& a, const Tensor& b, MatmulImpl impl = MatmulImpl::automatic);

/// activation(x w^T + bias). x [..., K], w [N, K], bias [N] or undefined -> [..., N].
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {},
              Activation activation = Activation::none, MatmulImpl impl = MatmulImpl::automatic);

}  // namespace athanor
