#include "kernels/elementwise.h"

#include "kernels/cpu/elementwise_map.h"

namespace athanor::kernels {
namespace {

using cpu::map;

template <class Op> void run_unary(CpuContext& context, const Tensor& x, const Tensor& y) {
  dispatch_floating(y.dtype(), "unary",
                    [&]<class T>() { map<T>(context, x, y, [](auto value) { return Op::forward(value); }); });
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

#define ATH_SPECIALISE(Op, name)                                                               \
  template <> void unary_forward<Op>(CpuContext & context, const Tensor& x, const Tensor& y) { \
    run_unary<Op>(context, x, y);                                                              \
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
