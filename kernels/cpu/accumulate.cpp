#include "kernels/accumulate.h"

#include <algorithm>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/update_range.h"
#include "kernels/scratch.h"

namespace athanor::kernels {
namespace {

// Calls f(op) with the functor.
template <class F> void with_op(Combine how, const F& f) {
  if (how == Combine::max) return f(CombineOp<Combine::max>());
  f(CombineOp<Combine::sum>());
}

constexpr std::int64_t kPiece = 1024;  // results that stay in L1 cache while the rows are read

}  // namespace

void accumulate(CpuContext& context, Combine how, const Tensor& x, Out y) {
  dispatch_number(y.dtype(), "accumulate", [&]<class T>() {
    using A = ComputeType<T>;
    with_op(how, [&](auto op) {
      const T* from = x.data<T>();
      T* to = y.data<T>();
      cpu::parallel_for(context, y.numel(), cpu::kGrain, [=](std::int64_t begin, std::int64_t end) {
        const T* __restrict in = from;
        T* __restrict out = to;
        cpu::vectorize([=] {
          for (std::int64_t i = begin; i < end; ++i) out[i] = T(op(A(in[i]), A(out[i])));
        });
      });
    });
  });
}

void combine_rows(CpuContext& context, Combine how, const Tensor& x, Out y) {
  const std::int64_t rows = x.shape()[0], n = y.numel();
  dispatch_number(y.dtype(), "combine_rows", [&]<class T>() {
    using A = ComputeType<T>;
    with_op(how, [&](auto op) {
      const T* from = x.data<T>();
      T* to = y.data<T>();
      cpu::parallel_for(context, n, cpu::kGrain, [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t first = begin; first < end; first += kPiece) {
          const std::int64_t count = std::min(kPiece, end - first);
          cpu::vectorize([=] {
            A sum[kPiece];
            for (std::int64_t i = 0; i < count; ++i) sum[i] = A(from[first + i]);
            for (std::int64_t row = 1; row < rows; ++row) {
              const T* __restrict in = from + row * n + first;
              for (std::int64_t i = 0; i < count; ++i) sum[i] = op(sum[i], A(in[i]));
            }
            for (std::int64_t i = 0; i < count; ++i) to[first + i] = T(sum[i]);
          });
        }
      });
    });
  });
}

void sum_squares(CpuContext& context, const Tensor& x, Out total) {
  const std::int64_t n = x.numel(), chunks = (n + kUpdateChunk - 1) / kUpdateChunk;
  const Scratch scratch = context.scratch(static_cast<std::size_t>(chunks) * sizeof(double));
  double* partial = scratch.as<double>();
  dispatch_floating(x.dtype(), "sum_squares", [&]<class T>() {
    const T* values = x.data<T>();
    cpu::for_each_task<false>(context, chunks, 2, [=](std::int64_t chunk) {
      const std::int64_t at = chunk * kUpdateChunk;
      partial[chunk] = cpu::sum_of_squares(values + at, std::min(kUpdateChunk, n - at));
    });
  });
  double sum = 0;
  for (std::int64_t i = 0; i < chunks; ++i) sum += partial[i];
  *total.data<double>() = sum;
}

void measure_squares(CpuContext& context, const Tensor& squares, const GradientLimits& limits) {
  const double* values = squares.data<double>();
  double sum = 0;
  for (std::int64_t i = 0; i < squares.numel(); ++i) sum += values[i];
  measure(*context.step(), sum, limits);
}

}  // namespace athanor::kernels
