#include "kernels/accumulate.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/map.h"
#include "kernels/cuda/total.h"
#include "kernels/update_ops.h"

namespace athanor::kernels {
namespace {

constexpr int kThreads = 256;

template <class F> void with_op(Combine how, const F& f) {
  if (how == Combine::max) return f(CombineOp<Combine::max>());
  f(CombineOp<Combine::sum>());
}

template <class T, class Op> struct CombineTwo {
  __device__ __forceinline__ T operator()(T x, T y) const {
    using A = ComputeType<T>;
    return T(Op()(A(x), A(y)));
  }
};

/// V neighbouring results a thread: sizeof(T) (rows + 1) bytes and rows - 1 FLOPs a result.
template <int V, class T, class Op>
__global__ void __launch_bounds__(kThreads, 4)
    rows_kernel(std::int64_t rows, std::int64_t n, const T* __restrict__ x, T* __restrict__ y) {
  using A = ComputeType<T>;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * V;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * V; i < n; i += step) {
    A sum[V];
    const auto first = cuda::load<V>(x + i);
#pragma unroll
    for (int k = 0; k < V; ++k) sum[k] = A(first[k]);
#pragma unroll(V > 8 ? 2 : 4)  // a byte takes a register
    for (std::int64_t row = 1; row < rows; ++row) {
      const auto in = cuda::load<V>(x + row * n + i);
#pragma unroll
      for (int k = 0; k < V; ++k) sum[k] = Op()(sum[k], A(in[k]));
    }
    cuda::Vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = T(sum[k]);
    cuda::store<V>(y + i, out);
  }
}

/// Square of an element. In double: finite f32 values cannot overflow it.
struct SquareOf {
  template <class T> __device__ __forceinline__ double operator()(T x) const {
    const double value = float(x);
    return value * value;
  }
};

__global__ void __launch_bounds__(32)
    measure_kernel(const double* squares, std::int64_t count, StepState* step, GradientLimits limits) {
  if (threadIdx.x != 0) return;
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += squares[i];
  measure(*step, sum, limits);
}

}  // namespace

void accumulate(CudaContext& context, Combine how, const Tensor& x, Out y) {
  dispatch_number(y.dtype(), "accumulate", [&]<class T>() {
    with_op(how, [&]<class Op>(Op) {
      cuda::map_dense(context, "accumulate", y.numel(), CombineTwo<T, Op>(), y.data<T>(), x.data<T>(),
                      static_cast<const T*>(y.data<T>()));
    });
  });
}

void combine_rows(CudaContext& context, Combine how, const Tensor& x, Out y) {
  const std::int64_t rows = x.shape()[0], n = y.numel();
  if (n == 0) return;
  dispatch_number(y.dtype(), "combine_rows", [&]<class T>() {
    with_op(how, [&]<class Op>(Op) {
      const T* from = x.data<T>();
      T* to = y.data<T>();
      cuda::dispatch_width<T>(
          n,
          [&]<int V>() {
            const unsigned blocks = cuda::blocks_for(context, (n + V - 1) / V, kThreads);
            cuda::launch(context, {"combine_rows", blocks, kThreads}, rows_kernel<V, T, Op>, rows, n, from,
                         to);
          },
          from, to);
    });
  });
}

void sum_squares(CudaContext& context, const Tensor& x, Out total) {
  dispatch_floating(x.dtype(), "sum_squares", [&]<class T>() {
    const T* values = x.data<T>();
    cuda::total(context, "sum_squares", x.numel(), SquareOf(), 1.0, total.data<double>(), values);
  });
}

void measure_squares(CudaContext& context, const Tensor& squares, const GradientLimits& limits) {
  cuda::launch(context, {"measure_squares", 1, 32}, measure_kernel, squares.data<double>(), squares.numel(),
               context.step(), limits);
}

}  // namespace athanor::kernels
