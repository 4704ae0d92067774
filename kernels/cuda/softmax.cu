#include <algorithm>

#include "kernels/cuda/context.h"
#include "kernels/cuda/max_sum.h"
#include "kernels/cuda/slices.h"
#include "kernels/softmax_ops.h"

// 2 elements moved per element forward, 3 backward; about 20 FLOPs for each exponential. A slice of
// neighbours is held in the registers of a warp or a block, so that it is read once; a longer one is read
// twice. Slices along another axis than the last lie side by side: a lane takes one, and the warps of a block
// share its length.

namespace athanor::kernels {
namespace {

using cuda::Columns;
using cuda::kRowBlock;
using cuda::MaxSum;
using cuda::RowPart;
using cuda::Vec;

template <class T, class A, class Shape>
__global__ void __launch_bounds__(kRowBlock, cuda::kResident<Shape, A>)
    forward_rows(const T* x, T* y, std::int64_t rows, std::int64_t n, SoftmaxForm form) {
  for (std::int64_t row = Shape::first(); row < rows; row += Shape::step()) {
    const T* in = x + row * n;
    T* out = y + row * n;
    if constexpr (Shape::elements > 0) {
      const int length = static_cast<int>(n);
      RowPart<A, Shape> part;
      part.load(in, length, A(0));
      if (form == SoftmaxForm::logarithm) {
        const MaxSum<A> whole = cuda::max_sum_of_row(part, length);
        const auto finish = SoftmaxOf<A>::slice(form, whole.max, whole.sum);
        part.store(out, length, [&](A value, int) { return finish(value); });
      } else {  // keeps the exponentials
        const A max =
            part.fold(length, MaxSum<A>::none().max, cuda::MaxOrNan{}, [](A value, int) { return value; });
#pragma unroll
        for (A& value : part.value) value = math::exp(value - max);
        const A scale = A(1) / part.fold(length, A(0), cuda::Plus{}, [](A value, int) { return value; });
        part.store(out, length, [=](A value, int) { return value * scale; });
      }
    } else {
      const MaxSum<A> whole = cuda::max_sum_of_row<A, Shape>(in, n);
      const auto finish = SoftmaxOf<A>::slice(form, whole.max, whole.sum);
      cuda::map_row<Shape>(
          out, n, [&](A value, std::int64_t) { return finish(value); }, in);
    }
  }
}

// Two rows in registers; f64 takes too many of them for as many blocks as one row has.
template <class Shape, class A>
inline constexpr int kResidentPairs = std::max(1, cuda::kResident<Shape, A> - (sizeof(A) > 4 ? 1 : 0));

template <class T, class A, class Shape>
__global__ void __launch_bounds__(kRowBlock, kResidentPairs<Shape, A>)
    backward_rows(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t n, SoftmaxForm form) {
  const SoftmaxGradient<A> gradient{form};
  for (std::int64_t row = Shape::first(); row < rows; row += Shape::step()) {
    const T *result = y + row * n, *in = dy + row * n;
    T* out = dx + row * n;
    if constexpr (Shape::elements > 0) {
      const int length = static_cast<int>(n);
      RowPart<A, Shape> value, part;
      value.load(result, length, A(0));
      part.load(in, length, A(0));
      const A total =
          part.fold(length, A(0), cuda::Plus{}, [&](A d, int e) { return gradient.term(value.value[e], d); });
      part.store(out, length, [&](A d, int e) { return gradient(value.value[e], d, total); });
    } else {
      constexpr int W = Shape::width;
      const std::int64_t first = std::int64_t{Shape::rank()} * W, step = std::int64_t{Shape::threads} * W;
      A total = 0;
      for (std::int64_t c = first; c < n; c += step) {
        const Vec<T, W> value = cuda::load<W>(result + c), d = cuda::load<W>(in + c);
#pragma unroll
        for (int i = 0; i < W; ++i) total += gradient.term(A(value[i]), A(d[i]));
      }
      total = cuda::group_sum<Shape::threads>(total);
      cuda::map_row<Shape>(
          out, n, [&](A value, A d, std::int64_t) { return gradient(value, d, total); }, result, in);
    }
  }
}

template <class T, class A>
__global__ void __launch_bounds__(Columns::threads)
    forward_columns(const T* x, T* y, Columns columns, SoftmaxForm form) {
  columns.for_each([&](std::int64_t at, std::int64_t, bool inside) {
    auto mine = MaxSum<A>::none();
    columns.for_each_piece(inside, [&](std::int64_t begin, std::int64_t end) {
      auto piece = MaxSum<A>::none();
      for (std::int64_t r = begin; r < end; r += Columns::height) {
        const A value[1] = {A(x[at + r * columns.inner])};
        piece.add(value);
      }
      mine = cuda::JoinMaxSum{}(mine, piece);
    });
    const MaxSum<A> whole = columns.fold(mine, cuda::JoinMaxSum{});
    const auto finish = SoftmaxOf<A>::slice(form, whole.max, whole.sum);
    for (std::int64_t r = columns.rank(); inside && r < columns.n; r += Columns::height)
      y[at + r * columns.inner] = T(finish(A(x[at + r * columns.inner])));
  });
}

template <class T, class A>
__global__ void __launch_bounds__(Columns::threads)
    backward_columns(const T* y, const T* dy, T* dx, Columns columns, SoftmaxForm form) {
  const SoftmaxGradient<A> gradient{form};
  columns.for_each([&](std::int64_t first, std::int64_t, bool inside) {
    A total = 0;
    columns.for_each_piece(inside, [&](std::int64_t begin, std::int64_t end) {
      A piece = 0;
      for (std::int64_t r = begin; r < end; r += Columns::height) {
        const std::int64_t at = first + r * columns.inner;
        piece += gradient.term(A(y[at]), A(dy[at]));
      }
      total += piece;
    });
    total = columns.fold(total, cuda::Plus{});
    for (std::int64_t r = columns.rank(); inside && r < columns.n; r += Columns::height) {
      const std::int64_t at = first + r * columns.inner;
      dx[at] = T(gradient(A(y[at]), A(dy[at]), total));
    }
  });
}

}  // namespace

void softmax_forward(CudaContext& context, SoftmaxForm form, const Tensor& x, int axis, Out y) {
  if (x.numel() == 0) return;
  dispatch_floating(x.dtype(), "softmax", [&]<class T>() {
    using A = Accumulate<T>;
    const Columns columns(x.shape(), axis);
    const T* from = x.data<T>();
    T* to = y.data<T>();
    if (columns.inner > 1) {
      return cuda::launch(context, {"softmax", columns.blocks(context), Columns::block()},
                          forward_columns<T, A>, from, to, columns, form);
    }
    cuda::dispatch_row<T>(columns.n, cuda::rows_aligned(columns.n, from, to), [&]<class Shape>() {
      cuda::launch(context, {"softmax", cuda::row_blocks<Shape>(context, columns.outer), kRowBlock},
                   forward_rows<T, A, Shape>, from, to, columns.outer, columns.n, form);
    });
  });
}

void softmax_backward(CudaContext& context, SoftmaxForm form, const Tensor& y, const Tensor& dy, int axis,
                      Out dx) {
  if (y.numel() == 0) return;
  dispatch_floating(y.dtype(), "softmax", [&]<class T>() {
    using A = Accumulate<T>;
    const Columns columns(y.shape(), axis);
    const T *result = y.data<T>(), *gradient = dy.data<T>();
    T* to = dx.data<T>();
    if (columns.inner > 1) {
      return cuda::launch(context, {"softmax_backward", columns.blocks(context), Columns::block()},
                          backward_columns<T, A>, result, gradient, to, columns, form);
    }
    cuda::dispatch_row<T>(columns.n, cuda::rows_aligned(columns.n, result, gradient, to), [&]<class Shape>() {
      cuda::launch(context, {"softmax_backward", cuda::row_blocks<Shape>(context, columns.outer), kRowBlock},
                   backward_rows<T, A, Shape>, result, gradient, to, columns.outer, columns.n, form);
    });
  });
}

}  // namespace athanor::kernels
