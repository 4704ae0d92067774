#pragma once

#include "kernels/cuda/columns.h"
#include "kernels/norm.h"

// What the kernels of both normalisations share.

namespace athanor::cuda {

template <class A> A* data_or_null(const Tensor& t) {
  return t.defined() ? t.data<A>() : nullptr;
}

/// Calls f.operator()<V>() with the elements a thread moves at a time: 16 bytes' worth where every row of
/// every operand begins on that boundary. (f64 is there for checks: one element.)
template <class T, class F, class... P>
void dispatch_width(std::int64_t row, const F& f, const P*... pointers) {
  if constexpr (sizeof(T) < 8) {
    if (row % kVec<T> == 0 && aligned<kVec<T>>(pointers...)) return f.template operator()<kVec<T>>();
  }
  f.template operator()<1>();
}

/// A Sink as kernels see it.
template <class A> struct Target {
  A* to;
  bool accumulate;

  explicit Target(const kernels::Sink& sink)
      : to(data_or_null<A>(sink.tensor)), accumulate(sink.write == Write::accumulate) {}
  __device__ __forceinline__ void put(std::int64_t c, double value) const {
    if (to) to[c] = A(accumulate ? static_cast<double>(to[c]) + value : value);
  }
};

}  // namespace athanor::cuda
