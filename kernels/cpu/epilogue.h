#pragma once

#include "kernels/activate.h"

namespace athanor::cpu {

/// Calls f.template operator()<Op>() with the functor of the activation that convolutions and matrix products
/// fuse: ReLU or none. Any other runs in a separate pass: few layers fuse one, since its gradient needs its
/// input.
template <class F> void dispatch_fused(bool relu, F&& f) {
  if (relu) return f.template operator()<kernels::Relu>();
  f.template operator()<kernels::Identity>();
}

}  // namespace athanor::cpu
