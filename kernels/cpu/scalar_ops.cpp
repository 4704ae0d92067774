#include "kernels/scalar_ops.h"

#include "kernels/cpu/context.h"
#include "kernels/cpu/elementwise_map.h"

namespace athanor::kernels {
namespace {

template <class Op> void run_forward(CpuContext& context, const Op& op, const Tensor& x, const Tensor& y) {
  dispatch_floating(y.dtype(), "scalar", [&]<class T>() {
    cpu::map<T>(
        context, [op](auto value) { return op.forward(value); }, y, x);
  });
}

template <class Op>
void run_backward(CpuContext& context, const Op& op, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  dispatch_floating(dx.dtype(), "scalar", [&]<class T>() {
    cpu::map<T>(
        context, [op](auto value, auto gradient) { return op.backward(value, gradient); }, dx, x, dy);
  });
}

}  // namespace

#define ATH_SPECIALISE(Op, name)                                                                         \
  template <> void scalar_forward(CpuContext& context, const Op& op, const Tensor& x, const Tensor& y) { \
    run_forward(context, op, x, y);                                                                      \
  }                                                                                                      \
  template <>                                                                                            \
  void scalar_backward(CpuContext& context, const Op& op, const Tensor& x, const Tensor& dy,             \
                       const Tensor& dx) {                                                               \
    run_backward(context, op, x, dy, dx);                                                                \
  }
ATH_SCALAR_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

}  // namespace athanor::kernels
