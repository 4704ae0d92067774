#include "kernels/cuda/context.h"
#include "kernels/cuda/slices.h"
#include "kernels/cuda/walk.h"
#include "kernels/extremum.h"

// Reads every element once, one comparison each. A slice of neighbours is shared by a warp or a block; along
// another axis than the last, lanes take slices side by side.

namespace athanor::kernels {
namespace {

using cuda::Columns;
using cuda::kRowBlock;

constexpr int kThreads = 256;

// The largest so far and where: NaN is largest, and of equals the first counts, in whatever order they come.
template <class A> struct Best {
  A value;
  std::int64_t index;

  static __device__ __forceinline__ Best none() {
    return {-std::numeric_limits<A>::infinity(), std::numeric_limits<std::int64_t>::max()};
  }
  __device__ __forceinline__ bool loses_to(const Best& other) const {
    const bool nan = value != value, other_nan = other.value != other.value;
    const bool same = nan ? other_nan : value == other.value;
    return same ? other.index < index : other_nan || other.value > value;  // false where this is NaN alone
  }
};

struct Better {
  template <class A> __device__ __forceinline__ Best<A> operator()(const Best<A>& a, const Best<A>& b) const {
    return a.loses_to(b) ? b : a;
  }
};

template <class A> __device__ __forceinline__ Best<A> shuffle_xor(const Best<A>& best, int mask) {
  return {cuda::shuffle_xor(best.value, mask), cuda::shuffle_xor(best.index, mask)};
}

template <class T>
__device__ __forceinline__ void write(T* values, std::int64_t* index, std::int64_t at,
                                      const Best<Accumulate<T>>& best) {
  if (values) values[at] = T(best.value);
  if (index) index[at] = best.index;
}

template <class T, class Shape>
__global__ void __launch_bounds__(kRowBlock)
    max_rows(const T* x, T* values, std::int64_t* index, std::int64_t rows, std::int64_t n) {
  using A = Accumulate<T>;
  constexpr int W = Shape::width;
  for (std::int64_t row = Shape::first(); row < rows; row += Shape::step()) {
    auto best = Best<A>::none();
#pragma unroll 4
    for (std::int64_t c = std::int64_t{Shape::rank()} * W; c < n; c += std::int64_t{Shape::threads} * W) {
      const cuda::Vec<T, W> in = cuda::load<W>(x + row * n + c);
#pragma unroll
      for (int i = 0; i < W; ++i) best = Better{}(best, Best<A>{A(in[i]), c + i});
    }
    best = cuda::group_fold<Shape::threads>(best, Better{});
    if (Shape::rank() == 0) write(values, index, row, best);
  }
}

template <class T>
__global__ void __launch_bounds__(Columns::threads)
    max_columns(const T* x, T* values, std::int64_t* index, Columns columns) {
  using A = Accumulate<T>;
  columns.for_each([&](std::int64_t first, std::int64_t slice, bool inside) {
    auto best = Best<A>::none();
#pragma unroll 4
    for (std::int64_t r = columns.rank(); r < columns.n; r += Columns::height) {
      if (inside) best = Better{}(best, Best<A>{A(x[first + r * columns.inner]), r});
    }
    best = columns.fold(best, Better{});
    if (inside && columns.rank() == 0) write(values, index, slice, best);
  });
}

/// Writes every element once; what it reads of index and dy comes from cache but for the first time.
template <class T>
__global__ void __launch_bounds__(kThreads)
    max_gradient(const std::int64_t* index, const T* dy, T* dx, std::int64_t count, std::int64_t n,
                 std::int64_t inner) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const auto line = cuda::divide(i, inner), outer = cuda::divide(line.whole, n);
    const std::int64_t slice = outer.whole * inner + line.rest;
    dx[i] = index[slice] == outer.rest ? dy[slice] : T(Accumulate<T>(0));
  }
}

}  // namespace

void max(CudaContext& context, const Tensor& x, int axis, Out values, Out index) {
  if (x.numel() == 0) return;
  dispatch_floating(x.dtype(), "max", [&]<class T>() {
    const Columns columns(x.shape(), axis);
    const T* from = x.data<T>();
    T* value_to = values.defined() ? values.data<T>() : nullptr;
    std::int64_t* index_to = index.defined() ? index.data<std::int64_t>() : nullptr;
    if (columns.inner > 1) {
      return cuda::launch(context, {"max", columns.blocks(context), Columns::block()}, max_columns<T>, from,
                          value_to, index_to, columns);
    }
    const auto rows = [&]<class Shape>() {
      cuda::launch(context, {"max", cuda::row_blocks<Shape>(context, columns.outer), kRowBlock},
                   max_rows<T, Shape>, from, value_to, index_to, columns.outer, columns.n);
    };
    const auto width = [&]<int W>() {
      if (columns.n <= 1024) return rows.template operator()<cuda::RowShape<cuda::kWarp, 0, W>>();
      rows.template operator()<cuda::RowShape<kRowBlock, 0, W>>();
    };
    if (cuda::rows_aligned(columns.n, from)) return width.template operator()<cuda::kVec<T>>();
    width.template operator()<1>();
  });
}

void max_backward(CudaContext& context, const Tensor& index, const Tensor& dy, int axis, Out dx) {
  dispatch_floating(dx.dtype(), "max", [&]<class T>() {
    const Columns columns(dx.shape(), axis);
    const std::int64_t count = dx.numel();
    cuda::launch(context, {"max_backward", cuda::blocks_for(context, count, kThreads), kThreads},
                 max_gradient<T>, index.data<std::int64_t>(), dy.data<T>(), dx.data<T>(), count, columns.n,
                 columns.inner);
  });
}

}  // namespace athanor::kernels
