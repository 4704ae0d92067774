#include "kernels/cpu/elementwise_map.h"
#include "kernels/elementwise.h"

namespace athanor::kernels {
namespace {

using cpu::map;

template <class Op>
void run_unary_backward(CpuContext& context, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  dispatch_floating(dx.dtype(), "unary", [&]<class T>() {
    map<T>(context, saved, dy, dx, [](auto value, auto gradient) { return Op::backward(value, gradient); });
  });
}

}  // namespace

#define ATH_SPECIALISE(Op, name)                                                                           \
  template <>                                                                                              \
  void unary_backward<Op>(CpuContext & context, const Tensor& saved, const Tensor& dy, const Tensor& dx) { \
    run_unary_backward<Op>(context, saved, dy, dx);                                                        \
  }
ATH_UNARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

}  // namespace athanor::kernels
