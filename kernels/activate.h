#pragma once

#include <type_traits>

#include "kernels/activation.h"
#include "kernels/elementwise.h"

namespace athanor::kernels {

/// Activation::none, as a functor like those of elementwise_ops.h.
struct Identity {
  static constexpr bool kFromOutput = true;
  template <class A> ATH_HD static A forward(A x) { return x; }
  template <class A> ATH_HD static A backward(A, A dy) { return dy; }
};

/// Calls f.template operator()<Op>() with the functor of an activation: Op::forward(x).
template <class F> decltype(auto) dispatch_activation(Activation activation, F&& f) {
  switch (activation) {
    case Activation::none: return f.template operator()<Identity>();
#define ATH_CASE(Op, name) \
  case Activation::name: return f.template operator()<Op>();
      ATH_ACTIVATIONS(ATH_CASE)
#undef ATH_CASE
  }
  athanor::detail::fail<>("activation: unknown activation {}", static_cast<int>(activation));
}

/// Whether the gradient needs only the result, not the input.
inline bool gradient_from_output(Activation activation) {
  // The lambda captures because nvcc warns about a conversion to a function pointer.
  return dispatch_activation(activation, [&]<class Op>() { return Op::kFromOutput; });
}

/// y = activation(y), y dense.
template <class Context> void activate(Context& context, Activation activation, const Tensor& y) {
  dispatch_activation(activation, [&]<class Op>() {
    if constexpr (!std::is_same_v<Op, Identity>) unary_forward<Op>(context, y, y);
  });
}

}  // namespace athanor::kernels
