#include <cmath>

#include "kernels/cpu/context.h"
#include "kernels/cpu/wide_rows.h"
#include "kernels/norm.h"

namespace athanor::kernels {
namespace {

template <class Op, bool kResidual, class T, class A>
void apply(const Wide& wide, std::int64_t chunk, const Affine<A>& affine, const T* x, const T* residual,
           T* y) {
  const auto group = [&](std::int64_t at, std::int64_t n, auto each) {
    const T* __restrict in = x + at;
    const T* __restrict plus = residual + (kResidual ? at : 0);
    T* __restrict out = y + at;
    const A* __restrict mean = affine.mean;
    const A* __restrict scale = affine.scale;
    const A* __restrict beta = affine.beta;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) {
      each([&](std::int64_t r) {
        const std::int64_t i = r * wide.width + j;
        A pre = std::fma(A(in[i]) - mean[j], scale[j], beta[j]);
        if constexpr (kResidual) pre += A(plus[i]);
        out[i] = T(Op::forward(pre));
      });
    }
  };
  wide.for_each_group<kTogether<T, Op>>(chunk, group);
}

}  // namespace

void batch_norm_forward(CpuContext& context, Activation activation, const Tensor& x, const Tensor& gamma,
                        const Tensor& beta, const Tensor& stats, const Tensor& residual, Out y, Out) {
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const Wide wide(x);
    const Affine<A> affine(context, wide, gamma, beta, stats);
    const T* in = x.data<T>();
    const T* plus = residual.defined() ? residual.data<T>() : nullptr;
    T* out = y.data<T>();
    dispatch_activation(activation, [&]<class Op>() {
      wide.for_each_chunk<kFastType<T>, From::begin>(context, [&](std::int64_t chunk) {
        if (plus) {
          apply<Op, true>(wide, chunk, affine, in, plus, out);
        } else {
          apply<Op, false>(wide, chunk, affine, in, plus, out);
        }
      });
    });
  });
}

/// None: backward reads y.
std::int64_t batch_norm_mask_bytes(CpuContext&, Activation, const Tensor&) {
  return 0;
}

}  // namespace athanor::kernels
