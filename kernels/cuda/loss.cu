#include "kernels/cuda/architecture.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/max_sum.h"
#include "kernels/cuda/total.h"
#include "kernels/loss.h"
#include "kernels/scratch.h"

namespace athanor::kernels {
namespace {

using cuda::kRowBlock;
using cuda::RowPart;

constexpr int kThreads = 256;

// Two rows in registers; f64 takes too many of them for as many blocks as one row has.
template <class Shape, class A>
inline constexpr int kResidentPairs = std::max(1, cuda::kResident<Shape, A> -
                                                      (sizeof(A) > 4 || cuda::kIsBlackwell ? 1 : 0));

template <class A> struct Identity {
  __device__ __forceinline__ A operator()(A x) const { return x; }
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
      loss = cross_entropy(whole.max, whole.sum, shifted, A(x[label]), A(n), smoothing);
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
      return g * cross_entropy_slope(value, max, inverse, on, spread, is_label);
    };
    if constexpr (Shape::elements > 0) {
      const int length = static_cast<int>(n), at = label >= 0 && label < n ? static_cast<int>(label) : -1;
      RowPart<A, Shape> part;
      part.load(x, length, A(0));
      part.store(out, length, [&](A value, int e) { return derivative(value, Shape::column(e) == at); });
    } else {
      cuda::map_row<Shape>(
          out, n, [&](A value, std::int64_t c) { return derivative(value, c == label); }, x);
    }
  }
}

// Cross-entropy against a distribution ---------------------------------------------------------------------

/// One read of logits and target (a row that does not fit registers: two of the logits, the second from
/// cache).
template <class T, class A, class Shape>
__global__ void __launch_bounds__(kRowBlock, kResidentPairs<Shape, A>)
    soft_cross_entropy_rows(const T* logits, TargetShares<T> share, std::int64_t rows, std::int64_t n,
                            A* stats, A* losses) {
  for (std::int64_t row = Shape::first(); row < rows; row += Shape::step()) {
    const T *x = logits + row * n, *q = share.target ? share.target + row * n : nullptr;
    auto whole = cuda::MaxSum<A>::none();
    A loss = 0, shares = 0;
    if constexpr (Shape::elements > 0) {
      const int length = static_cast<int>(n);
      RowPart<A, Shape> part, u;
      part.load(x, length, A(0));
      u.load(q ? q : x, length, A(0));
#pragma unroll
      for (int e = 0; e < Shape::elements; ++e) {
        const int column = Shape::column(e);
        u.value[e] = column < length ? share(u.value[e], column) : A(0);
      }
      whole = cuda::max_sum_of_row(part, length);
      const A log_sum = math::log(whole.sum);
      loss = part.fold(length, A(0), cuda::Plus{}, [&](A value, int e) {
        return soft_cross_entropy(value, whole.max, log_sum, u.value[e]);
      });
      shares = u.fold(length, A(0), cuda::Plus{}, [](A value, int) { return value; });
    } else {
      whole = cuda::max_sum_of_row<A, Shape>(x, n);
      const A log_sum = math::log(whole.sum);
      for (std::int64_t c = Shape::rank(); c < n; c += Shape::threads) {
        const A u = share(q ? A(q[c]) : A(0), c);
        loss += soft_cross_entropy(A(x[c]), whole.max, log_sum, u);
        shares += u;
      }
      loss = cuda::group_sum<Shape::threads>(loss);
      shares = cuda::group_sum<Shape::threads>(shares);
    }
    if (Shape::rank() != 0) continue;
    losses[row] = loss;
    stats[3 * row] = whole.max;
    stats[3 * row + 1] = A(1) / whole.sum;
    stats[3 * row + 2] = shares;
  }
}

/// Two reads and one write of an element, one exponential.
template <class T, class A, class Shape>
__global__ void __launch_bounds__(kRowBlock)
    soft_cross_entropy_gradient(const T* logits, TargetShares<T> share, const A* stats, std::int64_t rows,
                                std::int64_t n, RowGradient<A> gradient, T* dx) {
  for (std::int64_t row = Shape::first(); row < rows; row += Shape::step()) {
    const T *x = logits + row * n, *q = share.target ? share.target + row * n : nullptr;
    const A max = stats[3 * row], scale = stats[3 * row + 1] * stats[3 * row + 2], g = gradient[row];
    cuda::map_row<Shape>(
        dx + row * n, n,
        [&](A value, A target, std::int64_t c) {
          return g * soft_cross_entropy_slope(value, max, scale, share(target, c));
        },
        x, q ? q : x);
  }
}

// Ignored targets ------------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kThreads)
    split_targets(const std::int64_t* target, std::int64_t rows, std::int64_t ignored, std::int64_t* classes,
                  bool* kept) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; row < rows; row += step) {
    const std::int64_t label = target[row];
    kept[row] = label != ignored;
    classes[row] = label != ignored ? label : 0;
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

}  // namespace

// The host would have to wait: the loss of such a target is NaN instead.
void check_target(CudaContext&, const char*, const Tensor&, std::int64_t) {}

void cross_entropy_forward(CudaContext& context, const Tensor& logits, const Tensor& target, double smoothing,
                           double scale, Out stats, Out losses, Out y) {
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

void cross_entropy_backward(CudaContext& context, const Tensor& logits, const Tensor& target,
                            const Tensor& stats, double smoothing, double scale, const Tensor& dy, Out dx) {
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

void soft_cross_entropy_forward(CudaContext& context, const Tensor& logits, const Tensor& target,
                                const Tensor& weight, double smoothing, Out stats, Out losses) {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = logits.shape()[0], n = logits.shape()[1];
    const T* x = logits.data<T>();
    const TargetShares<T> shares(target, weight, smoothing, n);
    const T* q = shares.target ? shares.target : x;
    cuda::dispatch_row<T>(n, cuda::rows_aligned(n, x, q), [&]<class Shape>() {
      cuda::launch(context, {"soft_cross_entropy", cuda::row_blocks<Shape>(context, rows), kRowBlock},
                   soft_cross_entropy_rows<T, A, Shape>, x, shares, rows, n, stats.data<A>(),
                   losses.data<A>());
    });
  });
}

void soft_cross_entropy_backward(CudaContext& context, const Tensor& logits, const Tensor& target,
                                 const Tensor& weight, double smoothing, const Tensor& stats,
                                 const Tensor& dy, Out dx) {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = logits.shape()[0], n = logits.shape()[1];
    const T* x = logits.data<T>();
    T* out = dx.data<T>();
    const TargetShares<T> shares(target, weight, smoothing, n);
    const T* q = shares.target ? shares.target : x;
    cuda::dispatch_row<T>(n, cuda::rows_aligned(n, x, q, out), [&]<class Shape>() {
      cuda::launch(context,
                   {"soft_cross_entropy_backward", cuda::row_blocks<Shape>(context, rows), kRowBlock},
                   soft_cross_entropy_gradient<T, A, Shape>, x, shares, stats.data<A>(), rows, n,
                   RowGradient<A>(dy, 1), out);
    });
  });
}

void split_ignored(CudaContext& context, const Tensor& target, std::int64_t ignored, Out classes, Out kept) {
  const std::int64_t rows = target.numel();
  cuda::launch(context, {"split_ignored", cuda::blocks_for(context, rows, kThreads), kThreads}, split_targets,
               target.data<std::int64_t>(), rows, ignored, classes.data<std::int64_t>(), kept.data<bool>());
}

void nll_forward(CudaContext& context, const Tensor& log_probs, const Tensor& target, double scale, Out y) {
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

void nll_backward(CudaContext& context, const Tensor& target, double scale, const Tensor& dy, Out dx) {
  dispatch_floating(dx.dtype(), "nll_loss", [&]<class T>() {
    using A = Accumulate<T>;
    const std::int64_t rows = dx.shape()[0], n = dx.shape()[1];
    const unsigned blocks = cuda::blocks_for(context, rows, kRowBlock / cuda::kWarp, 16);
    cuda::launch(context, {"nll_loss_backward", blocks, kRowBlock}, nll_gradient<T, A>,
                 target.data<std::int64_t>(), rows, n, RowGradient<A>(dy, scale), dx.data<T>());
  });
}

}  // namespace athanor::kernels
