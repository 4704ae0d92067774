#include "kernels/cpu/context.h"
#include "kernels/cpu/elementwise_map.h"
#include "kernels/elementwise.h"

namespace athanor::kernels {
namespace {

using cpu::map;

template <class Op>
void run_unary_backward(CpuContext& context, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  dispatch_floating(dx.dtype(), "unary", [&]<class T>() {
    map<T, T, cpu::kOpGrain<Op>>(
        context, [](auto value, auto gradient) { return Op::backward(value, gradient); }, dx, saved, dy);
  });
}

template <class Op>
void run_binary_backward(CpuContext& context, int operand, const Tensor& a, const Tensor& b, const Tensor& dy,
                         const Tensor& dx) {
  dispatch_floating(dx.dtype(), "binary", [&]<class T>() {
    const auto run = [&](const auto& f) { map<T>(context, f, dx, a, b, dy); };
    if (operand == 0) {
      run([](auto... value) { return Op::first(value...); });
    } else {
      run([](auto... value) { return Op::second(value...); });
    }
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

#define ATH_SPECIALISE(Op, name)                                                                \
  template <>                                                                                   \
  void binary_backward<Op>(CpuContext & context, int operand, const Tensor& a, const Tensor& b, \
                           const Tensor& dy, const Tensor& dx) {                                \
    run_binary_backward<Op>(context, operand, a, b, dy, dx);                                    \
  }
ATH_BINARY_GRADIENTS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

}  // namespace athanor::kernels
