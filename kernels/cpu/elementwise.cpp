#include "kernels/elementwise.h"

#include "kernels/cpu/iterate.h"

namespace athanor::kernels {
namespace {

using cpu::for_each_row;
using cpu::Walk;

// y = f(x), for y dense.
template <class T, class F> void map(CpuContext& context, const Tensor& x, const Tensor& y, const F& f) {
  using A = Accumulate<T>;
  const T* from = x.data<T>();
  T* to = y.data<T>();
  const Walk<2> walk(y.shape(), {&x, &y});
  const std::int64_t step = walk.row_stride(0);
  for_each_row(context, walk, [=](const auto& offset, std::int64_t n) {
    const T* in = from + offset[0];
    T* out = to + offset[1];
    if (step == 1) {
      for (std::int64_t i = 0; i < n; ++i) out[i] = T(f(A(in[i])));
    } else {
      for (std::int64_t i = 0; i < n; ++i) out[i] = T(f(A(in[i * step])));
    }
  });
}

// y = f(a, b), broadcast, for y dense. A row of which one side repeats a single value (the usual shape of
// broadcasting along the last axis) is a vector loop as well.
template <class T, class F>
void map(CpuContext& context, const Tensor& a, const Tensor& b, const Tensor& y, const F& f) {
  using A = Accumulate<T>;
  const T *left = a.data<T>(), *right = b.data<T>();
  T* to = y.data<T>();
  const Walk<3> walk(y.shape(), {&a, &b, &y});
  const std::int64_t sa = walk.row_stride(0), sb = walk.row_stride(1);
  for_each_row(context, walk, [=](const auto& offset, std::int64_t n) {
    const T *pa = left + offset[0], *pb = right + offset[1];
    T* out = to + offset[2];
    if (sa == 1 && sb == 1) {
      for (std::int64_t i = 0; i < n; ++i) out[i] = T(f(A(pa[i]), A(pb[i])));
    } else if (sa == 1 && sb == 0) {
      const A value = A(*pb);
      for (std::int64_t i = 0; i < n; ++i) out[i] = T(f(A(pa[i]), value));
    } else if (sa == 0 && sb == 1) {
      const A value = A(*pa);
      for (std::int64_t i = 0; i < n; ++i) out[i] = T(f(value, A(pb[i])));
    } else {
      for (std::int64_t i = 0; i < n; ++i) out[i] = T(f(A(pa[i * sa]), A(pb[i * sb])));
    }
  });
}

template <class Op> void run_unary(CpuContext& context, const Tensor& x, const Tensor& y) {
  dispatch_floating(y.dtype(), "unary",
                    [&]<class T>() { map<T>(context, x, y, [](auto value) { return Op::forward(value); }); });
}

template <class Op>
void run_unary_backward(CpuContext& context, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  dispatch_floating(dx.dtype(), "unary", [&]<class T>() {
    map<T>(context, saved, dy, dx, [](auto value, auto gradient) { return Op::backward(value, gradient); });
  });
}

template <class Op> void run_binary(CpuContext& context, const Tensor& a, const Tensor& b, const Tensor& y) {
  dispatch_floating(y.dtype(), "binary", [&]<class T>() {
    map<T>(context, a, b, y, [](auto left, auto right) { return Op::forward(left, right); });
  });
}

}  // namespace

template <> void affine(CpuContext& context, const Tensor& x, double scale, double shift, const Tensor& y) {
  dispatch_floating(y.dtype(), "affine", [&]<class T>() {
    using A = Accumulate<T>;
    map<T>(context, x, y,
           [scale = A(scale), shift = A(shift)](A value) { return std::fma(value, scale, shift); });
  });
}

#define ATH_SPECIALISE(Op, name)                                                                           \
  template <> void unary_forward<Op>(CpuContext & context, const Tensor& x, const Tensor& y) {             \
    run_unary<Op>(context, x, y);                                                                          \
  }                                                                                                        \
  template <>                                                                                              \
  void unary_backward<Op>(CpuContext & context, const Tensor& saved, const Tensor& dy, const Tensor& dx) { \
    run_unary_backward<Op>(context, saved, dy, dx);                                                        \
  }
ATH_UNARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

#define ATH_SPECIALISE(Op, name)                                                                     \
  template <>                                                                                        \
  void binary_forward<Op>(CpuContext & context, const Tensor& a, const Tensor& b, const Tensor& y) { \
    run_binary<Op>(context, a, b, y);                                                                \
  }
ATH_BINARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

}  // namespace athanor::kernels
