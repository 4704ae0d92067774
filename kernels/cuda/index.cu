#include <algorithm>

#include "kernels/cuda/context.h"
#include "kernels/cuda/map.h"
#include "kernels/cuda/slices.h"
#include "kernels/detail/wide_sums.h"
#include "kernels/dispatch_size.h"
#include "kernels/index.h"

// Reading by index moves 2 elements per element and an index. Adding by index keeps the order of the indices
// without atomics and without sorting: a destination belongs to one block of threads, every block looks
// through all indices, 256 at a time, and adds those that are its own, one after another.
//
// An index out of range reads a zero and adds nothing: the host did not look at them.

namespace athanor::kernels {
namespace {

constexpr int kThreads = 256;

// Reading --------------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads)
    select(const T* x, const std::int64_t* index, T* y, std::int64_t count, std::int64_t size,
           std::int64_t inner, std::int64_t numel) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
#pragma unroll 4
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < numel; i += step) {
    const auto row = cuda::divide(i, inner), place = cuda::divide(row.whole, count);
    const std::int64_t at = index[place.rest];
    y[i] = at >= 0 && at < size ? x[(place.whole * size + at) * inner + row.rest] : T{};
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_along(const T* x, const std::int64_t* index, T* y, cuda::Walk<1> walk, std::int64_t size,
                 std::int64_t stride) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
#pragma unroll 4
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < walk.numel; i += step) {
    const std::int64_t at = index[i];
    y[i] = at >= 0 && at < size ? x[walk.offsets(i)[0] + at * stride] : T{};
  }
}

// Adding ---------------------------------------------------------------------------------------------------

// Lines of `length` places that are added in order: place k of a line adds `columns` neighbours of dy to
// those of the sums at its index. Offsets of a line are in index, dy and sums, steps from place to place in
// each.
struct Lines {
  cuda::Walk<3> walk;
  std::int64_t length, index_step, dy_step;
  std::int64_t size, sum_step;
  std::int64_t columns;
};

// One line a thread, where there are many and each place is one element.
template <class T, class A>
__global__ void __launch_bounds__(kThreads)
    add_line(Lines lines, const std::int64_t* index, const T* dy, A* sums) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t line = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; line < lines.walk.numel;
       line += step) {
    const auto base = lines.walk.offsets(line);
    for (std::int64_t k = 0; k < lines.length; ++k) {
      const std::int64_t at = index[base[0] + k * lines.index_step];
      if (at < 0 || at >= lines.size) continue;
      sums[base[2] + at * lines.sum_step] += A(dy[base[1] + k * lines.dy_step]);
    }
  }
}

// A block takes a line, a tile of columns and the destinations that are `group` modulo `groups` (a power of
// 2).
template <class T, class A>
__global__ void __launch_bounds__(kThreads, 4)
    add_group(Lines lines, std::int64_t groups, std::int64_t tile, std::int64_t tiles,
              const std::int64_t* index, const T* dy, A* sums) {
  __shared__ std::int64_t found[kThreads];
  __shared__ unsigned own[kThreads / 32];  // a bit for each of `found` that is this block's
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t task = blockIdx.x; task < lines.walk.numel * tiles * groups; task += gridDim.x) {
    const std::int64_t group = task % groups, first = task / groups % tiles * tile;
    const std::int64_t last = min(first + tile, lines.columns);
    const auto base = lines.walk.offsets(task / groups / tiles);
    for (std::int64_t k = 0; k < lines.length; k += kThreads) {
      const std::int64_t at =
          k + thread < lines.length ? index[base[0] + (k + thread) * lines.index_step] : -1;
      const bool mine = at >= 0 && at < lines.size && (at & (groups - 1)) == group;
      const unsigned bits = __ballot_sync(0xffffffffu, mine);
      found[thread] = at;
      if (thread % 32 == 0) own[thread / 32] = bits;
      __syncthreads();
      for (int warp = 0; warp < kThreads / 32; ++warp) {
        for (unsigned left = own[warp]; left != 0; left &= left - 1) {
          const int place = warp * 32 + __ffs(static_cast<int>(left)) - 1;
          const T* from = dy + base[1] + (k + place) * lines.dy_step;
          A* to = sums + base[2] + found[place] * lines.sum_step;
          for (std::int64_t c = first + thread; c < last; c += kThreads) to[c] += A(from[c]);
        }
      }
      __syncthreads();
    }
  }
}

void add_lines(CudaContext& context, const char* name, const Lines& lines, const Tensor& index,
               const Tensor& dy, const Tensor& dx) {
  constexpr std::int64_t kMany = 4096, kBlocks = 1024, kTile = 1024;
  if (lines.walk.numel == 0 || lines.length == 0 || lines.columns == 0 || lines.size == 0) return;
  const std::int64_t* at = index.data<std::int64_t>();
  dispatch_floating(dx.dtype(), name, [&]<class T>() {
    using A = Accumulate<T>;
    with_wide_sums<T>(context, dx, [&](A* sums) {
      if (lines.columns == 1 && (lines.walk.numel >= kMany || lines.length == 1)) {
        const unsigned blocks = cuda::blocks_for(context, lines.walk.numel, kThreads, 16);
        return cuda::launch(context, {name, blocks, kThreads}, add_line<T, A>, lines, at, dy.data<T>(), sums);
      }
      const std::int64_t tile = std::min(kTile, lines.columns), tiles = (lines.columns + tile - 1) / tile;
      const std::int64_t others = lines.walk.numel * tiles, most = std::min(lines.size, lines.length);
      std::int64_t groups = 1;
      while (groups * 2 <= most && others * groups < kBlocks) groups *= 2;
      const unsigned blocks = cuda::blocks_for(context, others * groups, 1, 16);
      cuda::launch(context, {name, blocks, kThreads}, add_group<T, A>, lines, groups, tile, tiles, at,
                   dy.data<T>(), sums);
    });
  });
}

// Choosing -------------------------------------------------------------------------------------------------

template <class T> struct Choose {
  __device__ __forceinline__ T operator()(bool condition, T a, T b) const { return condition ? a : b; }
};

}  // namespace

void check_indices(CudaContext&, const char*, const Tensor&, std::int64_t) {}

void index_select(CudaContext& context, const Tensor& x, int axis, const Tensor& index, Out y) {
  if (y.numel() == 0) return;
  const AxisShape in(x.shape(), axis);
  // Rows move in the widest pieces that divide them.
  const std::int64_t row = in.inner * static_cast<std::int64_t>(size_of(x.dtype()));
  const auto addresses =
      reinterpret_cast<std::uintptr_t>(x.raw_data()) | reinterpret_cast<std::uintptr_t>(y.raw_data());
  const auto run = [&]<int bytes>() {
    using T = cuda::Bits<bytes>;
    const std::int64_t inner = row / bytes, numel = in.outer * index.numel() * inner;
    cuda::launch(context, {"index_select", cuda::blocks_for(context, numel, kThreads), kThreads}, select<T>,
                 reinterpret_cast<const T*>(x.raw_data()), index.data<std::int64_t>(),
                 reinterpret_cast<T*>(y.raw_data()), index.numel(), in.n, inner, numel);
  };
  const auto divides = [&](int bytes) {
    return row % bytes == 0 && addresses % static_cast<unsigned>(bytes) == 0;
  };
  if (divides(16)) return run.template operator()<16>();
  if (divides(8)) return run.template operator()<8>();
  if (divides(4)) return run.template operator()<4>();
  if (divides(2)) return run.template operator()<2>();
  run.template operator()<1>();
}

void gather(CudaContext& context, const Tensor& x, int axis, const Tensor& index, Out y) {
  Strides strides = x.strides();
  strides[axis] = 0;
  const cuda::Walk<1> walk(index.shape(), {strides});
  dispatch_size(x.dtype(), [&]<class T>() {
    cuda::launch(context, {"gather", cuda::blocks_for(context, walk.numel, kThreads), kThreads},
                 gather_along<T>, reinterpret_cast<const T*>(x.raw_data()), index.data<std::int64_t>(),
                 reinterpret_cast<T*>(y.raw_data()), walk, x.shape()[axis], x.strides()[axis]);
  });
}

void index_add(CudaContext& context, const Tensor& dy, int axis, const Tensor& index, Out dx) {
  const AxisShape out(dx.shape(), axis);
  const std::int64_t count = index.numel();
  const Lines lines{.walk = cuda::Walk<3>(
                        {out.outer}, {Strides{0}, Strides{count * out.inner}, Strides{out.n * out.inner}}),
                    .length = count,
                    .index_step = 1,
                    .dy_step = out.inner,
                    .size = out.n,
                    .sum_step = out.inner,
                    .columns = out.inner};
  add_lines(context, "index_add", lines, index, dy, dx);
}

void scatter_add(CudaContext& context, const Tensor& dy, int axis, const Tensor& index, Out dx) {
  Shape shape = index.shape();
  shape[axis] = std::min<std::int64_t>(shape[axis], 1);
  const Lines lines{.walk = cuda::Walk<3>(shape, {index.strides(), dy.strides(), dx.strides()}),
                    .length = index.shape()[axis],
                    .index_step = index.strides()[axis],
                    .dy_step = dy.strides()[axis],
                    .size = dx.shape()[axis],
                    .sum_step = dx.strides()[axis],
                    .columns = 1};
  add_lines(context, "scatter_add", lines, index, dy, dx);
}

void where(CudaContext& context, const Tensor& condition, const Tensor& a, const Tensor& b, Out y) {
  const cuda::Walk<4> walk = cuda::walk_of<4>(y.shape(), condition, a, b, y);
  const bool* choice = condition.data<bool>();
  dispatch_size(y.dtype(), [&]<class T>() {
    const T* left = reinterpret_cast<const T*>(a.raw_data());
    const T* right = reinterpret_cast<const T*>(b.raw_data());
    T* to = reinterpret_cast<T*>(y.raw_data());
    cuda::map_walk(context, "where", walk, Choose<T>{}, Choose<T>{}, to, choice, left, right);
  });
}

}  // namespace athanor::kernels
