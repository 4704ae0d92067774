#pragma once

#include "kernels/activation.h"
#include "kernels/context.h"
#include "kernels/impl.h"
#include "kernels/packed_weights.h"

namespace athanor::kernels {

/// y (+)= activation(a b + bias), summed over leading axes that have size 1 in y but not in the product. a
/// [..., M, K], b [..., K, N], y [..., M, N]: equal rank >= 2, leading axes broadcast; a and b any strides
/// and one floating dtype, y dense, of that dtype or f32. bias [N] or undefined. Accumulates in f32 (f64 for
/// f64); a half y is rounded once. Write::accumulate and summed axes allow neither bias nor activation. 2 M N
/// K FLOPs per product.
ATH_KERNEL(void, matmul, MatmulImpl impl, const Tensor& a, const Tensor& b, const Tensor& bias,
           Activation activation, Out y, Write write);

/// y = alpha a b + beta c, on a GPU: sums, factors and y are as in matmul(). c is dense and has y's shape and
/// dtype; it may be y. A half y is rounded once.
void matmul_add(CudaContext& context, MatmulImpl impl, const Tensor& a, const Tensor& b, float alpha,
                const Tensor& c, float beta, Out y);
void matmul_add(AccountContext& context, MatmulImpl impl, const Tensor& a, const Tensor& b, float alpha,
                const Tensor& c, float beta, Out y);

/// y = activation(x w^T + bias) with the weights [N, K] and bias of `w`. x [M, K], y [M, N] dense on the CPU,
/// of the dtype of `w`. With oneDNN, a ReLU turns NaN into 0.
void linear_packed(CpuContext& context, const Tensor& x, const PackedWeights& w, Activation activation,
                   Out y);

/// sums (+)= the sum of x's rows: the gradient of a bias. x [..., N] dense, sums [N] of x's dtype or f32.
ATH_KERNEL(void, column_sums, const Tensor& x, Out sums, Write write);

}  // namespace athanor::kernels
