#include "kernels/cuda/context.h"
#include "kernels/cuda/map.h"
#include "kernels/cuda/reduce_plan.h"
#include "kernels/cuda/total.h"
#include "kernels/reduce.h"
#include "kernels/scratch.h"

// Every element of x is read once, 16 bytes a thread at a time where the innermost axis is dense; about one
// addition each. The work is cut into units by shape alone, as many as fill a large device; a thread sums in
// f32 (f64 for f64) and empties that into a double every so often; where there are several units to an output
// a second launch adds them up in order. No atomics: the same input gives the same bits.

namespace athanor::kernels {
namespace {

using cuda::Vec;

constexpr int kThreads = cuda::kReduceThreads;
constexpr int kUnroll = 4;
constexpr int kFlush = 16;  // times kUnroll vectors go to an f32 sum before it is emptied

// axes.at(index), in 32 bits where that will do, and one axis after the other: with copies of the division
// for several axes of several loads the kernels would not fit the instruction cache.
__device__ __forceinline__ ReduceAxes::Offset locate(const ReduceAxes& axes, std::int64_t index) {
  ReduceAxes::Offset offset;
#pragma unroll 1
  for (int i = axes.rank - 1; i >= 0; --i) {
    const ReduceAxes::Axis& axis = axes.axes[static_cast<std::size_t>(i)];
    std::int64_t k = index;
    if (i > 0) {
      const auto row = cuda::divide(index, axis.size);
      k = row.rest;
      index = row.whole;
    }
    offset.x += k * axis.x;
    offset.y += k * axis.y;
  }
  return offset;
}

// What is summed. at(y offset) is what a term needs to know of its output.
struct Sum {
  template <class A> __device__ __forceinline__ A at(std::int64_t) const { return A(0); }
  template <class A> __device__ __forceinline__ A term(A x, A) const { return x; }
};
struct SquaredDeviation {
  const void* mean;
  template <class A> __device__ __forceinline__ A at(std::int64_t y) const {
    return static_cast<const A*>(mean)[y];
  }
  template <class A> __device__ __forceinline__ A term(A x, A mean_of_y) const {
    const A deviation = x - mean_of_y;
    return deviation * deviation;
  }
};

// y (+)= scale * sum, as y's dtype.
struct Store {
  std::byte* y;
  DType dtype;
  double scale;
  bool add;

  __device__ __forceinline__ void operator()(std::int64_t at, double sum) const {
    switch (dtype) {
      case DType::f64: return put(reinterpret_cast<double*>(y)[at], sum);
      case DType::f16: return put(reinterpret_cast<Half*>(y)[at], sum);
      case DType::bf16: return put(reinterpret_cast<BFloat16*>(y)[at], sum);
      default: return put(reinterpret_cast<float*>(y)[at], sum);
    }
  }
  template <class U> __device__ __forceinline__ void put(U& out, double sum) const {
    using B = Accumulate<U>;
    const B value = B(sum * scale);
    out = U(add ? B(out) + value : value);
  }
};

// W neighbouring terms of each of several rows, added up: in A for a while, in double in the end.
template <class A, int W> struct Sums {
  A some[W] = {};
  double all[W] = {};

  template <class T, class F>
  __device__ __forceinline__ void take(const Vec<T, W>& x, const F& f, const A (&known)[W]) {
#pragma unroll
    for (int i = 0; i < W; ++i) some[i] += f.term(A(x[i]), known[i]);
  }
  __device__ __forceinline__ void flush() {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      all[i] += static_cast<double>(some[i]);
      some[i] = A(0);
    }
  }
};

// The innermost axis is reduced ----------------------------------------------------------------------------

struct Rows : cuda::RowUnits {
  ReduceAxes kept, reduced;
  std::int64_t n, step;

  Rows(const ReducePlan& plan, int width)
      : RowUnits(plan, width),
        kept(plan.kept),
        reduced(plan.reduced),
        n(plan.inner.size),
        step(plan.inner.x) {}

  __device__ __forceinline__ std::int64_t offset(std::int64_t term) const {
    if (reduced.rank == 0) return term * step;
    const auto row = cuda::divide(term, n);
    return locate(reduced, row.whole).x + row.rest * step;
  }
};

template <int kGroup, int W, bool kAligned, class T, class F>
__global__ void __launch_bounds__(kThreads, 2)
    sum_rows(const T* x, Rows rows, F f, double* partial, Store store) {
  using A = Accumulate<T>;
  using Shape = cuda::RowShape<kGroup, 0, W>;
  constexpr int kStep = kGroup * W;
  for (std::int64_t task = Shape::first(); task < rows.outputs * rows.units; task += Shape::step()) {
    const auto place = cuda::divide(task, rows.units);  // which output, which unit of it
    const auto base = locate(rows.kept, place.whole);
    A known[W];
#pragma unroll
    for (int i = 0; i < W; ++i) known[i] = f.template at<A>(base.y);
    const T* in = x + base.x;
    std::int64_t at = place.rest * rows.unit + std::int64_t{Shape::rank()} * W;
    const std::int64_t end = min((place.rest + 1) * rows.unit, rows.terms);
    Sums<A, W> sums;
    for (int full = 1; at + (kUnroll - 1) * kStep + W <= end; at += kUnroll * kStep, ++full) {
      Vec<T, W> value[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        value[u] = cuda::load_vector<kAligned, W>(in + rows.offset(at + u * kStep));
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) sums.take(value[u], f, known);
      if (full % kFlush == 0) sums.flush();
    }
    for (; at + W <= end; at += kStep)
      sums.take(cuda::load_vector<kAligned, W>(in + rows.offset(at)), f, known);
    for (int i = 0; i < W; ++i) {  // a vector that ends beyond the last term
      if (at + i < end) sums.some[0] += f.term(A(in[rows.offset(at + i)]), known[0]);
    }
    sums.flush();
    double total = 0;
#pragma unroll
    for (int i = 0; i < W; ++i) total += sums.all[i];
    total = cuda::group_sum<kGroup>(total);
    if (Shape::rank() != 0) continue;
    if (rows.units == 1) {
      store(base.y, total);
    } else {
      partial[task] = total;
    }
  }
}

// A block an output: its units, in order.
__global__ void __launch_bounds__(kThreads)
    add_units_of_rows(const double* partial, ReduceAxes kept, std::int64_t outputs, std::int64_t units,
                      Store store) {
  for (std::int64_t k = blockIdx.x; k < outputs; k += gridDim.x) {
    double total = 0;
#pragma unroll 4
    for (std::int64_t unit = threadIdx.x; unit < units; unit += kThreads) total += partial[k * units + unit];
    total = cuda::group_sum<kThreads>(total);
    if (threadIdx.x == 0) store(locate(kept, k).y, total);
  }
}

// The innermost axis is kept -------------------------------------------------------------------------------

struct Columns : cuda::ColumnUnits {
  ReduceAxes kept, reduced;
  std::int64_t step, y_step;

  Columns(const ReducePlan& plan, int vector)
      : ColumnUnits(plan, vector),
        kept(plan.kept),
        reduced(plan.reduced),
        step(plan.inner.x),
        y_step(plan.inner.y) {}
};

template <int W, bool kAligned, class T, class F>
__global__ void __launch_bounds__(kThreads, 2)
    sum_columns(const T* x, Columns columns, F f, double* partial, Store store) {
  using A = Accumulate<T>;
  __shared__ double of_lane[W][kThreads];
  const int thread = static_cast<int>(threadIdx.x), lane = thread / columns.width;
  for (std::int64_t task = blockIdx.x; task < columns.outputs * columns.units * columns.tiles;
       task += gridDim.x) {
    const auto [part, tile] = cuda::divide(task, columns.tiles);
    const auto [output, unit] = cuda::divide(part, columns.units);
    const auto base = locate(columns.kept, output);
    const std::int64_t column = (tile * columns.width + thread % columns.width) * W;
    const bool inside = lane < columns.lanes && column < columns.n;
    Sums<A, W> sums;
    if (inside) {
      A known[W];
#pragma unroll
      for (int i = 0; i < W; ++i) known[i] = f.template at<A>(base.y + (column + i) * columns.y_step);
      const T* in = x + base.x + column * columns.step;
      const std::int64_t last = min((unit + 1) * columns.unit, columns.rows), step = columns.lanes;
      std::int64_t row = unit * columns.unit + lane;
      for (int full = 1; row + (kUnroll - 1) * step < last; row += kUnroll * step, ++full) {
        Vec<T, W> value[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
          value[u] = cuda::load_vector<kAligned, W>(in + locate(columns.reduced, row + u * step).x);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) sums.take(value[u], f, known);
        if (full % kFlush == 0) sums.flush();
      }
      for (; row < last; row += step)
        sums.take(cuda::load_vector<kAligned, W>(in + locate(columns.reduced, row).x), f, known);
    }
    sums.flush();
#pragma unroll
    for (int i = 0; i < W; ++i) of_lane[i][thread] = sums.all[i];
    __syncthreads();
    for (int lanes = columns.lanes; lanes > 1;) {  // the upper half onto the lower, again and again
      const int half = (lanes + 1) / 2;
      if (lane + half < lanes) {
#pragma unroll
        for (int i = 0; i < W; ++i) of_lane[i][thread] += of_lane[i][thread + half * columns.width];
      }
      lanes = half;
      __syncthreads();
    }
    if (inside && lane == 0) {
#pragma unroll
      for (int i = 0; i < W; ++i) {
        if (columns.units == 1) {
          store(base.y + (column + i) * columns.y_step, of_lane[i][thread]);
        } else {
          partial[part * columns.n + column + i] = of_lane[i][thread];
        }
      }
    }
    __syncthreads();  // before the next task's sums
  }
}

constexpr int kHeight = 32;  // threads that share a column's units

__global__ void __launch_bounds__(cuda::kWarp* kHeight)
    add_units_of_columns(const double* partial, Columns columns, Store store) {
  __shared__ double of[kHeight][cuda::kWarp];
  const std::int64_t across = (columns.n + cuda::kWarp - 1) / cuda::kWarp;
  for (std::int64_t task = blockIdx.x; task < columns.outputs * across; task += gridDim.x) {
    const auto [k, strip] = cuda::divide(task, across);
    const std::int64_t column = strip * cuda::kWarp + threadIdx.x;
    double total = 0;
#pragma unroll 4
    for (std::int64_t unit = threadIdx.y; unit < columns.units; unit += kHeight) {
      if (column < columns.n) total += partial[(k * columns.units + unit) * columns.n + column];
    }
    of[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y == 0 && column < columns.n) {
#pragma unroll
      for (int h = 1; h < kHeight; ++h) total += of[h][threadIdx.x];
      store(locate(columns.kept, k).y + column * columns.y_step, total);
    }
    __syncthreads();
  }
}

// Both -----------------------------------------------------------------------------------------------------

// Whether vectors of W elements start at multiples of W wherever the axes lead.
template <int W, class T> bool steps_aligned(const ReducePlan& plan, const T* x) {
  bool aligned = cuda::aligned<W>(x);
  for (const ReduceAxes* axes : {&plan.kept, &plan.reduced}) {
    for (int i = 0; i < axes->rank; ++i) aligned &= axes->axes[static_cast<std::size_t>(i)].x % W == 0;
  }
  return aligned;
}

template <int W, bool kAligned, class T, class F>
void reduce_rows(const CudaContext& context, const char* name, const ReducePlan& plan, const T* x, const F& f,
                 const Store& store) {
  const Rows rows(plan, W);
  const Scratch scratch = context.scratch(static_cast<std::size_t>(rows.partial_sums()) * sizeof(double));
  auto* partial = scratch.as<double>();
  const unsigned groups =
      cuda::row_blocks(context.multiprocessors(), rows.outputs * rows.units, rows.threads);
  cuda::launch(context, {name, groups, kThreads},
               rows.threads == cuda::kWarp ? sum_rows<cuda::kWarp, W, kAligned, T, F>
                                           : sum_rows<kThreads, W, kAligned, T, F>,
               x, rows, f, partial, store);
  if (rows.units == 1) return;
  const unsigned blocks = cuda::blocks_for(context, rows.outputs, 1, 8);
  cuda::launch(context, {name, blocks, kThreads}, add_units_of_rows, partial, rows.kept, rows.outputs,
               rows.units, store);
}

template <int W, bool kAligned, class T, class F>
void reduce_columns(const CudaContext& context, const char* name, const ReducePlan& plan, const T* x,
                    const F& f, const Store& store) {
  const Columns columns(plan, W);
  const std::int64_t tasks = columns.outputs * columns.units * columns.tiles;
  const Scratch scratch = context.scratch(static_cast<std::size_t>(columns.partial_sums()) * sizeof(double));
  auto* partial = scratch.as<double>();
  cuda::launch(context, {name, cuda::blocks_for(context, tasks, 1, 16), kThreads},
               sum_columns<W, kAligned, T, F>, x, columns, f, partial, store);
  if (columns.units == 1) return;
  const std::int64_t across = cuda::pieces(columns.n, cuda::kWarp);
  cuda::launch(context,
               {name, cuda::blocks_for(context, columns.outputs * across, 1, 8), dim3(cuda::kWarp, kHeight)},
               add_units_of_columns, partial, columns, store);
}

// store(y offset, sum of f over what is reduced to it) for every element of y.
template <class T, class F>
void reduce(const CudaContext& context, const char* name, const Tensor& x, const Tensor& y, const F& f,
            const Store& store) {
  if (x.numel() == 0) {
    ReduceAxes kept;
    kept.push({y.numel(), 0, 1});
    const unsigned blocks = cuda::blocks_for(context, y.numel(), 1, 8);
    return cuda::launch(context, {name, blocks, kThreads}, add_units_of_rows,
                        static_cast<const double*>(nullptr), kept, y.numel(), 0, store);
  }
  constexpr int V = cuda::kVec<T>;
  const ReducePlan plan(x, y);
  const T* from = x.data<T>();
  // How wide depends on shape and strides; the address only on how that much is loaded.
  const bool wide = cuda::reduce_width(plan, V) > 1, aligned = steps_aligned<V>(plan, from);
  const auto run = [&]<int W, bool kAligned>() {
    if (plan.inner_reduced) return reduce_rows<W, kAligned>(context, name, plan, from, f, store);
    reduce_columns<W, kAligned>(context, name, plan, from, f, store);
  };
  if (!wide) return run.template operator()<1, true>();
  if (aligned) return run.template operator()<V, true>();
  run.template operator()<V, false>();
}

template <class T> struct DeviationGradient {
  using A = Accumulate<T>;
  A scale;
  __device__ __forceinline__ T operator()(T x, A mean, T dy) const {
    return T(scale * A(dy) * (A(x) - mean));
  }
};

template <class T> struct Nonfinite {
  const T* values;
  __device__ __forceinline__ std::int64_t operator()(std::int64_t i) const {
    const auto value = Accumulate<T>(values[i]);
    return value - value == 0 ? 0 : 1;
  }
};

}  // namespace

void sum(CudaContext& context, const Tensor& x, Out y, double scale, Write write) {
  const Store store{y.raw_data(), y.dtype(), scale, write == Write::accumulate};
  dispatch_floating(x.dtype(), "sum", [&]<class T>() { reduce<T>(context, "sum", x, y, Sum{}, store); });
}

void squared_deviation(CudaContext& context, const Tensor& x, const Tensor& mean, Out y, double scale) {
  const Store store{y.raw_data(), y.dtype(), scale, false};
  dispatch_floating(x.dtype(), "var", [&]<class T>() {
    reduce<T>(context, "var", x, y, SquaredDeviation{mean.raw_data()}, store);
  });
}

void squared_deviation_backward(CudaContext& context, const Tensor& x, const Tensor& mean, const Tensor& dy,
                                Out dx, double scale) {
  dispatch_floating(x.dtype(), "var", [&]<class T>() {
    using A = Accumulate<T>;
    const DeviationGradient<T> f{A(scale)};
    cuda::map_walk(context, "var_backward", cuda::walk_of<4>(dx.shape(), x, mean, dy, dx), f, f, dx.data<T>(),
                   static_cast<const T*>(x.data<T>()), static_cast<const A*>(mean.data<A>()),
                   static_cast<const T*>(dy.data<T>()));
  });
}

std::int64_t count_nonfinite(CudaContext& context, const Tensor& x) {
  return dispatch_floating(x.dtype(), "count_nonfinite", [&]<class T>() {
    return cuda::exact_total<std::int64_t>(context, "count_nonfinite", x.numel(), Nonfinite<T>{x.data<T>()});
  });
}

}  // namespace athanor::kernels
