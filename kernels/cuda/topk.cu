#include "kernels/cuda/context.h"
#include "kernels/cuda/divide.h"
#include "kernels/cuda/group.h"
#include "kernels/detail/axis_shape.h"
#include "kernels/numbers.h"
#include "kernels/topk.h"

// A block takes a slice and finds its elements one after another: each time the first, in the order of
// comes_before(), of those that come after what it has. That reads the slice k times, from cache where it
// fits, and needs neither memory nor a sort: made for the few best of many.

namespace athanor::kernels {

template <class A> __device__ __forceinline__ Ranked<A> shuffle_xor(const Ranked<A>& ranked, int mask) {
  return {cuda::shuffle_xor(ranked.value, mask), cuda::shuffle_xor(ranked.index, mask)};
}

namespace {

constexpr int kThreads = 256;

// The first so far; an index of -1 is none.
template <class A> struct First {
  bool largest;

  __device__ __forceinline__ Ranked<A> operator()(const Ranked<A>& a, const Ranked<A>& b) const {
    if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
    return comes_before(a, b, largest) ? a : b;
  }
};

/// Reads every element k times.
template <class T>
__global__ void __launch_bounds__(kThreads)
    select_in_turn(const T* x, T* values, std::int64_t* index, AxisShape in, std::int64_t k, bool largest) {
  using A = ComputeType<T>;
  for (std::int64_t slice = blockIdx.x; slice < in.outer * in.inner; slice += gridDim.x) {
    const auto place = cuda::divide(slice, in.inner);
    const T* elements = x + place.whole * in.n * in.inner + place.rest;
    Ranked<A> last{A(0), -1};
    for (std::int64_t j = 0; j < k; ++j) {
      Ranked<A> best{A(0), -1};
      for (std::int64_t i = threadIdx.x; i < in.n; i += kThreads) {
        const Ranked<A> element{A(elements[i * in.inner]), i};
        if (last.index < 0 || comes_before(last, element, largest)) best = First<A>{largest}(best, element);
      }
      last = cuda::group_fold<kThreads>(best, First<A>{largest});
      if (threadIdx.x == 0) {
        const std::int64_t at = (place.whole * k + j) * in.inner + place.rest;
        values[at] = elements[last.index * in.inner];
        index[at] = last.index;
      }
    }
  }
}

}  // namespace

void topk(CudaContext& context, const Tensor& x, int axis, bool largest, Out values, Out index) {
  const AxisShape in(x.shape(), axis);
  if (in.outer * in.inner == 0) return;
  dispatch_number(x.dtype(), "topk", [&]<class T>() {
    cuda::launch(context, {"topk", cuda::blocks_for(context, in.outer * in.inner, 1, 16), kThreads},
                 select_in_turn<T>, x.data<T>(), values.data<T>(), index.data<std::int64_t>(), in,
                 values.shape()[axis], largest);
  });
}

}  // namespace athanor::kernels
