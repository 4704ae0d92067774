#include "kernels/elementwise.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/iterate.h"

namespace athanor::kernels {
namespace {

using cpu::for_each_row;
using cpu::parallel_for;
using cpu::vectorize;
using cpu::Walk;

template <class Op> void run_unary(CpuContext& context, const Tensor& x, const Tensor& y) {
  dispatch_floating(x.dtype(), "unary", [&]<class T>() {
    using A = Accumulate<T>;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const Walk<2> walk(y.shape(), {&x, &y});
    const std::int64_t step = walk.row_stride(0);
    for_each_row(context, walk, [&](const auto& offset, std::int64_t n) {
      const T* in = from + offset[0];
      T* out = to + offset[1];
      if (step == 1) {
        vectorize([&] {
          for (std::int64_t i = 0; i < n; ++i) out[i] = T(Op::forward(A(in[i])));
        });
      } else {
        for (std::int64_t i = 0; i < n; ++i) out[i] = T(Op::forward(A(in[i * step])));
      }
    });
  });
}

template <class Op>
void run_unary_backward(CpuContext& context, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  dispatch_floating(x.dtype(), "unary", [&]<class T>() {
    using A = Accumulate<T>;
    const T *in = x.data<T>(), *grad = dy.data<T>();
    T* out = dx.data<T>();
    parallel_for(context, x.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
      vectorize([&] {
        for (std::int64_t i = begin; i < end; ++i) out[i] = T(Op::backward(A(in[i]), A(grad[i])));
      });
    });
  });
}

template <class Op> void run_binary(CpuContext& context, const Tensor& a, const Tensor& b, const Tensor& y) {
  dispatch_floating(y.dtype(), "binary", [&]<class T>() {
    using A = Accumulate<T>;
    const T *left = a.data<T>(), *right = b.data<T>();
    T* to = y.data<T>();
    const Walk<3> walk(y.shape(), {&a, &b, &y});
    const std::int64_t sa = walk.row_stride(0), sb = walk.row_stride(1);
    for_each_row(context, walk, [&](const auto& offset, std::int64_t n) {
      const T *pa = left + offset[0], *pb = right + offset[1];
      T* out = to + offset[2];
      if (sa == 1 && sb == 1) {
        vectorize([&] {
          for (std::int64_t i = 0; i < n; ++i) out[i] = T(Op::forward(A(pa[i]), A(pb[i])));
        });
      } else {
        for (std::int64_t i = 0; i < n; ++i) out[i] = T(Op::forward(A(pa[i * sa]), A(pb[i * sb])));
      }
    });
  });
}

}  // namespace

#define ATH_SPECIALISE(Op)                                                                             \
  template <> void unary_forward<Op>(CpuContext & context, const Tensor& x, const Tensor& y) {         \
    run_unary<Op>(context, x, y);                                                                      \
  }                                                                                                    \
  template <>                                                                                          \
  void unary_backward<Op>(CpuContext & context, const Tensor& x, const Tensor& dy, const Tensor& dx) { \
    run_unary_backward<Op>(context, x, dy, dx);                                                        \
  }
ATH_UNARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

#define ATH_SPECIALISE(Op)                                                                           \
  template <>                                                                                        \
  void binary_forward<Op>(CpuContext & context, const Tensor& a, const Tensor& b, const Tensor& y) { \
    run_binary<Op>(context, a, b, y);                                                                \
  }
ATH_BINARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

}  // namespace athanor::kernels
