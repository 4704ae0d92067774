#include "kernels/cuda/map.h"
#include "kernels/cuda/max_sum.h"
#include "kernels/cuda/total.h"
#include "kernels/loss.h"

namespace athanor::kernels {
namespace {

using cuda::kRowBlock;
using cuda::RowPart;

constexpr int kThreads = 256;

template <class A> struct Identity {
  __device__ __forceinline__ A operator()(A x) const { return x; }
};

template <class T, class A> struct SquaredDifference {
  __device__ __forceinline__ A operator()(T a, T b) const {
    const A difference = A(a) - A(b);
    return difference * difference;
  }
};

// dy: one value for all rows, or one per row at any stride.
template <class A> struct RowGradient {
  const A* values;
  std::int64_t step;
  A scale;

  RowGradient(const Tensor& dy, double factor)
      : values(dy.data<A>()), step(dy.rank() == 0 ? 0 : dy.strides()[0]), scale(A(factor)) {}
  __device__ __forceinline__ A operator[](std::int64_t row) const { return values[row * step] * scale; }
};

template <class A>
void sum_rows(const CudaContext& context, const char* name, std::int64_t rows, const A* losses, double scale,
              const Tensor& y) {
  cuda::total(context, name, rows, Identity<A>{}, scale, y.data<A>(), losses);
}

// Cross entropy --------------------------------------------------------------------------------------------

/// One read of the logits (a row that does not fit registers: two with smoothing, the second from cache);
/// about 20 FLOPs an element for the exponential.
template <class T, class A, class Shape>
__global__ void __launch_bounds__(kRowBlock, cuda::kResident<Shape, A>)
    cross_entropy_rows(const T* logits, const std::int64_t* target, std::int64_t rows, std::int64_t n,
                       A smoothing, A* stats, A* losses) {
  for (std::int64_t row = Shape::first(); row < rows; row += Shape::step()) {
    const T* x = logits + row * n;
    auto whole = cuda::MaxSum<A>::none();
    A shifted = 0;  // sum of x - max
    if constexpr (Shape::elements > 0) {
      const int length = static_cast<int>(n);
      RowPart<A, Shape> part;
      part.load(x, length, A(0));
      whole = cuda::max_sum_of_row(part, length);
      if (smoothing > A(0))
        shifted = part.fold(length, A(0), cuda::Plus{}, [&](A value, int) { return value - whole.max; });
    } else {
      whole = cuda::max_sum_of_row<A, Shape>(x, n);
      if (smoothing > A(0)) {
        for (std::int64_t c = Shape::rank(); c < n; c += Shape::threads) shifted += A(x[c]) - whole.max;
        shifted = cuda::group_sum<Shape::threads>(shifted);
      }
    }
    if (Shape::rank() != 0) continue;
    const std::int64_t label = target[row];
    A loss = std::numeric_limits<A>::quiet_NaN();
    if (label >= 0 && label < n) {
      loss = math::log(whole.sum) - (A(1) - smoothing) * (A(x[label]) - whole.max);
      if (smoothing > A(0)) loss -= smoothing * (shifted / A(n));
    }
    losses[row] = loss;
    stats[2 * row] = whole.max;
    stats[2 * row + 1] = A(1) / whole.sum;
  }
}

/// One read and one write of an element, one exponential.
template <class T, class A, class Shape>
__global__ void __launch_bounds__(kRowBlock, cuda::kResident<Shape, A>)
    cross_entropy_gradient(const T* logits, const std::int64_t* target, const A* stats, std::int64_t rows,
                           std::int64_t n, A spread, A on, RowGradient<A> gradient, T* dx) {
  for (std::int64_t row = Shape::first(); row < rows; row += Shape::step()) {
    const T* x = logits + row * n;
    T* out = dx + row * n;
    const std::int64_t label = target[row];
    const A max = stats[2 * row], inverse = stats[2 * row + 1], g = gradient[row];
    const auto derivative = [=](A value, bool is_label) {
      const A p = math::exp(value - max) * inverse - spread;
      return g * (is_label ? p - on : p);
    };
    if constexpr (Shape::elements > 0) {
      const int length = static_cast<int>(n), at = label >= 0 && label < n ? static_cast<int>(label) : -1;
      RowPart<A, Shape> part;
      part.load(x, length, A(0));
      part.store(out, length, [&](A value, int e) { return derivative(value, Shape::column(e) == at); });
    } else {
      constexpr int W = Shape::width;
      for (std::int64_t c = std::int64_t{Shape::rank()} * W; c < n; c += std::int64_t{Shape::threads} * W) {
        const cuda::Vec<T, W> in = cuda::load<W>(x + c);
        cuda::Vec<T, W> result;
#pragma unroll
        for (int i = 0; i < W; ++i) result[i] = T(derivative(A(in[i]), c + i == label));
        cuda::store<W>(out + c, result);
      }
    }
  }
}

// Negative log likelihood ----------------------------------------------------------------------------------

template <class T, class A>
__global__ void __launch_bounds__(kThreads)
    nll_rows(const T* log_probs, const std::int64_t* target, std::int64_t rows, std::int64_t n, A* losses) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; row < rows; row += step) {
    const std::int64_t label = target[row];
    losses[row] =
        label >= 0 && label < n ? -A(log_probs[row * n + label]) : std::numeric_limits<A>::quiet_NaN();
  }
}

template <class T, class A>
__global__ void __launch_bounds__(kRowBlock) nll_gradient(const std::int64_t* target, std::int64_t rows,
                                                          std::int64_t n, RowGradient<A> gradient, T* dx) {
  using Shape = cuda::RowShape<cuda::kWarp, 0, 1>;
  for (std::int64_t row = Shape::first(); row < rows; row += Shape::step()) {
    const std::int64_t label = target[row];
    const T at_label = T(-gradient[row]);
    for (std::int64_t c = Shape::rank(); c < n; c += Shape::threads)
      dx[row * n + c] = c == label ? at_label : T(A(0));
  }
}

// Squared error --------------------------------------------------------------------------------------------

template <class T, class A> struct MseGradientOfSum {
  A factor;
  const A* dy;
  __device__ __forceinline__ T operator()(T a, T b) const { return T(factor * *dy * (A(a) - A(b))); }
};
template <class T, class A> struct MseGradient {
  A factor;
  __device__ __forceinline__ T operator()(T a, T b, A dy) const { return T(factor * dy * (A(a) - A(b))); }
};

}  // namespace

// The host would have to wait: the loss of such a target is NaN instead.
template <> void check_target(CudaContext&, const char*, const Tensor&, std::int64_t) {}

template <>
void cross_entropy_forward(CudaContext& context, const Tensor& logits, const Tensor& target, double smoothing,
                           double scale, const Tensor& stats, const Tensor& losses, const Tensor& y) {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = logits.shape()[0], n = logits.shape()[1];
    const T* x = logits.data<T>();
    cuda::dispatch_row<T>(n, cuda::rows_aligned(n, x), [&]<class Shape>() {
      cuda::launch(context, {"cross_entropy", cuda::row_blocks<Shape>(context, rows), kRowBlock},
                   cross_entropy_rows<T, A, Shape>, x, target.data<std::int64_t>(), rows, n, A(smoothing),
                   stats.data<A>(), losses.data<A>());
    });
    if (y.defined()) sum_rows<A>(context, "cross_entropy", rows, losses.data<A>(), scale, y);
  });
}

template <>
void cross_entropy_backward(CudaContext& context, const Tensor& logits, const Tensor& target,
                            const Tensor& stats, double smoothing, double scale, const Tensor& dy,
                            const Tensor& dx) {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = logits.shape()[0], n = logits.shape()[1];
    const T* x = logits.data<T>();
    T* out = dx.data<T>();
    const A spread = A(smoothing / static_cast<double>(n)), on = A(1 - smoothing);
    cuda::dispatch_row<T>(n, cuda::rows_aligned(n, x, out), [&]<class Shape>() {
      cuda::launch(context, {"cross_entropy_backward", cuda::row_blocks<Shape>(context, rows), kRowBlock},
                   cross_entropy_gradient<T, A, Shape>, x, target.data<std::int64_t>(), stats.data<A>(), rows,
                   n, spread, on, RowGradient<A>(dy, scale), out);
    });
  });
}

template <>
void nll_forward(CudaContext& context, const Tensor& log_probs, const Tensor& target, double scale,
                 const Tensor& y) {
  dispatch_floating(log_probs.dtype(), "nll_loss", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = log_probs.shape()[0], n = log_probs.shape()[1];
    const bool reduced = y.rank() == 0;
    const Scratch scratch = context.scratch(reduced ? static_cast<std::size_t>(rows) * sizeof(A) : 0);
    A* losses = reduced ? scratch.as<A>() : y.data<A>();
    cuda::launch(context, {"nll_loss", cuda::blocks_for(context, rows, kThreads), kThreads}, nll_rows<T, A>,
                 log_probs.data<T>(), target.data<std::int64_t>(), rows, n, losses);
    if (reduced) sum_rows<A>(context, "nll_loss", rows, losses, scale, y);
  });
}

template <>
void nll_backward(CudaContext& context, const Tensor& target, double scale, const Tensor& dy,
                  const Tensor& dx) {
  dispatch_floating(dx.dtype(), "nll_loss", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = dx.shape()[0], n = dx.shape()[1];
    const unsigned blocks = cuda::blocks_for(context, rows, kRowBlock / cuda::kWarp, 16);
    cuda::launch(context, {"nll_loss_backward", blocks, kRowBlock}, nll_gradient<T, A>,
                 target.data<std::int64_t>(), rows, n, RowGradient<A>(dy, scale), dx.data<T>());
  });
}

template <> void squared_difference(CudaContext& context, const Tensor& a, const Tensor& b, const Tensor& y) {
  dispatch_floating(a.dtype(), "mse_loss", [&]<class T>() {
    using A = Accumulate<T>;
    const T *left = a.data<T>(), *right = b.data<T>();
    cuda::map_dense(context, "mse_loss", a.numel(), SquaredDifference<T, A>{}, y.data<A>(), left, right);
  });
}

template <>
void mse_forward(CudaContext& context, const Tensor& a, const Tensor& b, double scale, const Tensor& y) {
  dispatch_floating(a.dtype(), "mse_loss", [&]<class T>() {
    using A = Accumulate<T>;
    const T *left = a.data<T>(), *right = b.data<T>();
    cuda::total(context, "mse_loss", a.numel(), SquaredDifference<T, A>{}, scale, y.data<A>(), left, right);
  });
}

template <>
void mse_backward(CudaContext& context, const Tensor& a, const Tensor& b, double scale, const Tensor& dy,
                  const Tensor& da) {
  dispatch_floating(a.dtype(), "mse_loss", [&]<class T>() {
    using A = Accumulate<T>;
    const T *left = a.data<T>(), *right = b.data<T>();
    const A* gradient = dy.data<A>();
    T* out = da.data<T>();
    const A factor = A(2 * scale);
    if (dy.rank() == 0) {
      cuda::map_dense(context, "mse_loss_backward", a.numel(), MseGradientOfSum<T, A>{factor, gradient}, out,
                      left, right);
    } else {
      cuda::map_dense(context, "mse_loss_backward", a.numel(), MseGradient<T, A>{factor}, out, left, right,
                      gradient);
    }
  });
}

}  // namespace athanor::kernels
