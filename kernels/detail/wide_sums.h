#pragma once

#include <type_traits>

#include "kernels/copy.h"

namespace athanor::kernels {

/// Calls f(sums) with the dense elements of dx or, for a half type, with an f32 copy that is rounded back
/// afterwards.
template <class T, class Context, class F>
void with_wide_sums(Context& context, const Tensor& dx, const F& f) {
  using A = Accumulate<T>;
  if constexpr (std::is_same_v<T, A>) {
    f(dx.data<A>());
  } else {
    const Tensor wide = Tensor::empty(dx.shape(), {dtype_of<A>, dx.device()});
    copy(context, dx, wide);
    f(wide.data<A>());
    copy(context, wide, dx);
  }
}

}  // namespace athanor::kernels
