#include "kernels/cpu/context.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/slices.h"
#include "kernels/softmax_ops.h"

namespace athanor::kernels {
namespace {

using cpu::for_each_slice;
using cpu::kSlices;
using cpu::max_lanes;
using cpu::sum_lanes;

// One slice of n adjacent elements. An f32 or f64 row of y stores the exponentials until their sum is known;
// a half type would round them, so they are computed twice.
template <SoftmaxForm form, class T> void forward_row(const T* x, T* y, std::int64_t n) {
  using A = Accumulate<T>;
  const A max = max_lanes<A>(n, [&](std::int64_t i) { return A(x[i]); });
  const auto power = [&](std::int64_t i) { return math::exp(A(x[i]) - max); };
  if constexpr (form == SoftmaxForm::probability && std::is_same_v<T, A>) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = power(i);
    const A scale = A(1) / sum_lanes<A>(n, [&](std::int64_t i) { return y[i]; });
    for (std::int64_t i = 0; i < n; ++i) y[i] *= scale;
  } else {
    const auto finish = SoftmaxOf<A>::slice(form, max, sum_lanes<A>(n, power));
    for (std::int64_t i = 0; i < n; ++i) y[i] = T(finish(A(x[i])));
  }
}

constexpr std::int64_t kPiece = 256;  // terms summed in A; chunks are joined in double

// totals[j] = the sum over r of term(r, j), for `width` adjacent slices.
template <class A, class F>
void sum_columns(std::int64_t n, std::int64_t width, double* totals, const F& term) {
  A piece[kSlices];
  for (std::int64_t j = 0; j < width; ++j) totals[j] = 0;
  for (std::int64_t first = 0; first < n; first += kPiece) {
    for (std::int64_t j = 0; j < width; ++j) piece[j] = A(0);
    for (std::int64_t r = first; r < std::min(n, first + kPiece); ++r) {
      for (std::int64_t j = 0; j < width; ++j) piece[j] += term(r, j);
    }
    for (std::int64_t j = 0; j < width; ++j) totals[j] += static_cast<double>(piece[j]);
  }
}

// `width` adjacent slices, with one row of all of them every `inner` elements.
template <SoftmaxForm form, class T>
void forward_columns(const T* x, T* y, std::int64_t n, std::int64_t inner, std::int64_t width) {
  using A = Accumulate<T>;
  A max[kSlices], last[kSlices];
  double totals[kSlices];
  for (std::int64_t j = 0; j < width; ++j) max[j] = A(x[j]);
  for (std::int64_t r = 1; r < n; ++r) {
    for (std::int64_t j = 0; j < width; ++j) max[j] = cpu::max_or_nan(max[j], A(x[r * inner + j]));
  }
  sum_columns<A>(n, width, totals,
                 [&](std::int64_t r, std::int64_t j) { return math::exp(A(x[r * inner + j]) - max[j]); });
  for (std::int64_t j = 0; j < width; ++j) last[j] = SoftmaxOf<A>::slice(form, max[j], A(totals[j])).last;
  for (std::int64_t r = 0; r < n; ++r) {
    const T* in = x + r * inner;
    T* out = y + r * inner;
    for (std::int64_t j = 0; j < width; ++j) out[j] = T(SoftmaxOf<A>{form, max[j], last[j]}(A(in[j])));
  }
}

template <SoftmaxForm form, class T> void backward_row(const T* y, const T* dy, T* dx, std::int64_t n) {
  using A = Accumulate<T>;
  const SoftmaxGradient<A> gradient{form};
  const A total = sum_lanes<A>(n, [&](std::int64_t i) { return gradient.term(A(y[i]), A(dy[i])); });
  for (std::int64_t i = 0; i < n; ++i) dx[i] = T(gradient(A(y[i]), A(dy[i]), total));
}

template <SoftmaxForm form, class T>
void backward_columns(const T* y, const T* dy, T* dx, std::int64_t n, std::int64_t inner,
                      std::int64_t width) {
  using A = Accumulate<T>;
  const SoftmaxGradient<A> gradient{form};
  double totals[kSlices];
  sum_columns<A>(n, width, totals, [&](std::int64_t r, std::int64_t j) {
    return gradient.term(A(y[r * inner + j]), A(dy[r * inner + j]));
  });
  for (std::int64_t r = 0; r < n; ++r) {
    for (std::int64_t j = 0; j < width; ++j) {
      const std::int64_t at = r * inner + j;
      dx[at] = T(gradient(A(y[at]), A(dy[at]), A(totals[j])));
    }
  }
}

template <SoftmaxForm form>
void run_forward(CpuContext& context, const Tensor& x, int axis, const Tensor& y) {
  dispatch_floating(x.dtype(), "softmax", [&]<class T>() {
    const AxisShape shape(x.shape(), axis);
    if (shape.n == 0) return;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    for_each_slice<T>(context, shape, [=](std::int64_t at, std::int64_t, std::int64_t width) {
      if (shape.inner == 1) return forward_row<form>(from + at, to + at, shape.n);
      forward_columns<form>(from + at, to + at, shape.n, shape.inner, width);
    });
  });
}

template <SoftmaxForm form>
void run_backward(CpuContext& context, const Tensor& y, const Tensor& dy, int axis, const Tensor& dx) {
  dispatch_floating(y.dtype(), "softmax", [&]<class T>() {
    const AxisShape shape(y.shape(), axis);
    if (shape.n == 0) return;
    const T *result = y.data<T>(), *gradient = dy.data<T>();
    T* to = dx.data<T>();
    for_each_slice<T>(context, shape, [=](std::int64_t at, std::int64_t, std::int64_t width) {
      if (shape.inner == 1) return backward_row<form>(result + at, gradient + at, to + at, shape.n);
      backward_columns<form>(result + at, gradient + at, to + at, shape.n, shape.inner, width);
    });
  });
}

}  // namespace

void softmax_forward(CpuContext& context, SoftmaxForm form, const Tensor& x, int axis, Out y) {
  if (form == SoftmaxForm::logarithm) return run_forward<SoftmaxForm::logarithm>(context, x, axis, y);
  run_forward<SoftmaxForm::probability>(context, x, axis, y);
}

void softmax_backward(CpuContext& context, SoftmaxForm form, const Tensor& y, const Tensor& dy, int axis,
                      Out dx) {
  if (form == SoftmaxForm::logarithm) return run_backward<SoftmaxForm::logarithm>(context, y, dy, axis, dx);
  run_backward<SoftmaxForm::probability>(context, y, dy, axis, dx);
}

}  // namespace athanor::kernels
