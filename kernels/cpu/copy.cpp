#include "kernels/copy.h"

#include <cstring>

#include "kernels/convert.h"
#include "kernels/copy_walk.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/iterate.h"
#include "kernels/dispatch_size.h"

// Three ways to copy, chosen by the unit strides after sorting axes by y's strides and merging: whole rows
// (both innermost strides are 1), tiles (x is contiguous along another axis: a transpose in blocks that stay
// in L1), and otherwise element by element.

namespace athanor::kernels {
namespace {

// Walks x and y in the order of y's memory.
cpu::Walk<2> walk_of(const Tensor& x, const Tensor& y) {
  return walk_by_output<cpu::Walk<2>>(broadcast_strides(x, y.shape()), y);
}

// Conversions used in training and loading have vector loops, the other fifty a plain loop each.
template <class T>
constexpr bool kOften = std::is_same_v<T, float> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16> ||
                        std::is_same_v<T, std::uint8_t>;

// f(in, out) for every pair of elements, row by row.
template <class From, class To, class F>
void for_each_pair(CpuContext& context, const cpu::Walk<2>& walk, const From* from, To* to, const F& f) {
  const std::int64_t sx = walk.row_stride(0), sy = walk.row_stride(1);
  constexpr bool kFast = std::is_same_v<From, To> || (kOften<From> && kOften<To>);
  cpu::for_each_row<kFast>(context, walk, [&](const auto& offset, std::int64_t n) {
    const From* in = from + offset[0];
    To* out = to + offset[1];
    if constexpr (!kFast) {
      for (std::int64_t i = 0; i < n; ++i) f(in[i * sx], out[i * sy]);
    } else if (sx == 1 && sy == 1) {
      cpu::vectorize([&] {
        for (std::int64_t i = 0; i < n; ++i) f(in[i], out[i]);
      });
    } else if (sx == 0 && sy == 1) {
      const From value = *in;
      cpu::vectorize([&] {
        for (std::int64_t i = 0; i < n; ++i) f(value, out[i]);
      });
    } else {
      for (std::int64_t i = 0; i < n; ++i) f(in[i * sx], out[i * sy]);
    }
  });
}

// y[row][col] = x[col][row] for one tile; sx and sy are the strides of the outer index of each. Squares of 8
// are read into registers along x and written along y.
template <class T>
void transpose_tile(const T* x, std::int64_t sx, T* y, std::int64_t sy, std::int64_t rows,
                    std::int64_t cols) {
  constexpr std::int64_t kSquare = 8;
  std::int64_t row = 0;
  for (; row + kSquare <= rows; row += kSquare) {
    std::int64_t col = 0;
    for (; col + kSquare <= cols; col += kSquare) {
      T square[kSquare][kSquare];
      for (std::int64_t i = 0; i < kSquare; ++i) {
        std::memcpy(square[i], x + (col + i) * sx + row, sizeof square[i]);
      }
      for (std::int64_t j = 0; j < kSquare; ++j) {
        for (std::int64_t i = 0; i < kSquare; ++i) y[(row + j) * sy + col + i] = square[i][j];
      }
    }
    for (; col < cols; ++col) {
      for (std::int64_t j = 0; j < kSquare; ++j) y[(row + j) * sy + col] = x[col * sx + row + j];
    }
  }
  for (; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) y[row * sy + col] = x[col * sx + row];
  }
}

template <class T>
void copy_tiles(CpuContext& context, const cpu::Walk<2>& walk, int along, const T* x, T* y) {
  const int inner = walk.rank - 1;
  const std::int64_t rows = walk.size[along], cols = walk.size[inner];
  const std::int64_t tile_cols = std::min<std::int64_t>(cols, 64);
  const std::int64_t tile_rows = std::min<std::int64_t>(rows, std::max<std::int64_t>(64, 4096 / tile_cols));
  const std::int64_t across = (cols + tile_cols - 1) / tile_cols, down = (rows + tile_rows - 1) / tile_rows;
  std::int64_t outer = 1;
  for (int axis = 0; axis < inner; ++axis) outer *= axis == along ? 1 : walk.size[axis];
  const std::int64_t grain = cpu::grain_of(tile_rows * tile_cols);
  cpu::for_each_task<false>(context, outer * down * across, grain, [&](std::int64_t tile) {
    const std::int64_t col = tile % across * tile_cols, row = tile / across % down * tile_rows;
    std::int64_t rest = tile / across / down;
    const T* in = x + row + col * walk.stride[0][inner];
    T* out = y + row * walk.stride[1][along] + col;
    for (int axis = inner - 1; axis >= 0; --axis) {
      if (axis == along) continue;
      in += rest % walk.size[axis] * walk.stride[0][axis];
      out += rest % walk.size[axis] * walk.stride[1][axis];
      rest /= walk.size[axis];
    }
    transpose_tile(in, walk.stride[0][inner], out, walk.stride[1][along], std::min(tile_rows, rows - row),
                   std::min(tile_cols, cols - col));
  });
}

// Elements of one size are copied as unsigned integers, whatever their type.
template <class T> void copy_same(CpuContext& context, const Tensor& x, const Tensor& y) {
  const cpu::Walk<2> walk = walk_of(x, y);
  const T* from = reinterpret_cast<const T*>(x.raw_data());
  T* to = reinterpret_cast<T*>(y.raw_data());
  if (walk.row_stride(0) == 1 && walk.row_stride(1) == 1) {
    cpu::for_each_row(context, walk, [&](const auto& offset, std::int64_t n) {
      std::memcpy(to + offset[1], from + offset[0], static_cast<std::size_t>(n) * sizeof(T));
    });
  } else if (const int along = transposed_axis(walk); along >= 0) {
    copy_tiles(context, walk, along, from, to);
  } else {
    for_each_pair(context, walk, from, to, [](const T& in, T& out) { out = in; });
  }
}

}  // namespace

void copy(CpuContext& context, const Tensor& x, Out y) {
  if (y.numel() == 0) return;
  if (x.dtype() == y.dtype())
    return dispatch_size(x.dtype(), [&]<class T>() { copy_same<T>(context, x, y); });
  const cpu::Walk<2> walk = walk_of(x, y);
  dispatch_any(x.dtype(), [&]<class From>() {
    dispatch_any(y.dtype(), [&]<class To>() {
      if constexpr (!std::is_same_v<From, To>) {
        for_each_pair(context, walk, x.data<From>(), y.data<To>(),
                      [](const From& in, To& out) { out = convert<To>(in); });
      }
    });
  });
}

void fill(CpuContext& context, Out y, double value) {
  dispatch_any(y.dtype(), [&]<class T>() {
    const T element = convert<T>(value);
    T* to = y.data<T>();
    cpu::parallel_for(context, y.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::fill(to + begin, to + end, element);
    });
  });
}

void add_into(CpuContext& context, const Tensor& x, Out y) {
  if (y.numel() == 0) return;
  const cpu::Walk<2> walk = walk_of(x, y);
  dispatch_floating(x.dtype(), "add_into", [&]<class From>() {
    dispatch_floating(y.dtype(), "add_into", [&]<class To>() {
      using A = std::conditional_t<std::is_same_v<From, double>, double, Accumulate<To>>;
      for_each_pair(context, walk, x.data<From>(), y.data<To>(),
                    [](const From& in, To& out) { out = convert<To>(convert<A>(out) + convert<A>(in)); });
    });
  });
}

void arange(CpuContext& context, double start, double step, Out y) {
  dispatch_any(y.dtype(), [&]<class T>() {
    T* to = y.data<T>();
    cpu::parallel_for(context, y.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = convert<T>(start + static_cast<double>(i) * step);
    });
  });
}

void eye(CpuContext& context, Out y) {
  fill(context, y, 0);
  dispatch_any(y.dtype(), [&]<class T>() {
    const std::int64_t n = std::min(y.shape()[0], y.shape()[1]), step = y.shape()[1] + 1;
    for (std::int64_t i = 0; i < n; ++i) y.data<T>()[i * step] = convert<T>(1.0);
  });
}

}  // namespace athanor::kernels
