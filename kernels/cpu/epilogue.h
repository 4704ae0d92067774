#pragma once

#include "kernels/activate.h"

namespace athanor::cpu {

/// Whether convolutions and matrix products apply an activation before they write. Any other takes a pass of
/// its own: few layers have one fused, since its gradient needs what it was applied to.
inline bool fuses(Activation activation) {
  return activation == Activation::none || activation == Activation::relu;
}

/// Calls f.template operator()<Op>() with the functor of an activation that fuses().
template <class F> void dispatch_fused(Activation activation, F&& f) {
  if (activation == Activation::relu) return f.template operator()<kernels::Relu>();
  f.template operator()<kernels::Identity>();
}

}  // namespace athanor::cpu
