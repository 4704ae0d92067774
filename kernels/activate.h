#pragma once

#include "kernels/activation.h"
#include "kernels/elementwise_ops.h"
#include "tensor/error.h"

namespace athanor::kernels {

/// Activation::none, as a functor like those of elementwise_ops.h.
struct Identity {
  template <class A> ATH_HD static A forward(A x) { return x; }
  template <class A> ATH_HD static A backward(A, A dy) { return dy; }
};

/// Calls f.template operator()<Op>() with the functor of an activation: Op::forward(x).
template <class F> decltype(auto) dispatch_activation(Activation activation, F&& f) {
  switch (activation) {
    case Activation::none: return f.template operator()<Identity>();
    case Activation::relu: return f.template operator()<Relu>();
    case Activation::gelu: return f.template operator()<Gelu>();
    case Activation::silu: return f.template operator()<Silu>();
  }
  athanor::detail::fail<>("activation: unknown one {}", static_cast<int>(activation));
}

}  // namespace athanor::kernels
