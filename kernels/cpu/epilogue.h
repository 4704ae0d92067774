#pragma once

#include "kernels/activate.h"

namespace athanor::cpu {

/// Whether convolutions and matrix products fuse an activation. Any other runs in a separate pass: few layers
/// fuse one, since its gradient needs its input.
inline bool fuses(Activation activation) {
  return activation == Activation::none || activation == Activation::relu;
}

/// Calls f.template operator()<Op>() with the functor of a fused activation: see fuses().
template <class F> void dispatch_fused(Activation activation, F&& f) {
  if (activation == Activation::relu) return f.template operator()<kernels::Relu>();
  f.template operator()<kernels::Identity>();
}

}  // namespace athanor::cpu
