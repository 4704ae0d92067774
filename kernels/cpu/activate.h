#pragma once

#include "kernels/activation.h"
#include "kernels/elementwise_ops.h"
#include "tensor/error.h"

namespace athanor::cpu {

struct Identity {
  template <class A> static A forward(A x) { return x; }
};

/// Calls f.template operator()<Op>() with the functor of an activation: Op::forward(x).
template <class F> decltype(auto) dispatch_activation(Activation activation, F&& f) {
  switch (activation) {
    case Activation::none: return f.template operator()<Identity>();
    case Activation::relu: return f.template operator()<kernels::Relu>();
    case Activation::gelu: return f.template operator()<kernels::Gelu>();
    case Activation::silu: return f.template operator()<kernels::Silu>();
  }
  detail::fail<>("activation: unknown one {}", static_cast<int>(activation));
}

}  // namespace athanor::cpu
