#pragma once

#include "kernels/norm.h"

namespace athanor::cpu {

/// Writes the gradient of a parameter, if requested: element c is total(before, c), where `before` is the
/// value to which it is added, or 0.
template <class A, class F>
void write_parameter(const kernels::GradientTarget& to, std::int64_t n, const F& total) {
  if (!to.tensor.defined()) return;
  A* out = to.tensor.data<A>();
  for (std::int64_t c = 0; c < n; ++c)
    out[c] = A(total(to.write == Write::accumulate ? static_cast<double>(out[c]) : 0.0, c));
}

}  // namespace athanor::cpu
