#pragma once  // Explained in docs/tensors.md.

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cpu/context.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/detail/strided_walk.h"

namespace athanor::cpu {

/// Whether loops over elements of T are compiled for every vector width, which doubles compile time: f64 is
/// for gradient checks, not training.
template <class T> inline constexpr bool kFastType = !std::is_same_v<T, double>;

/// vectorize(f), or f() compiled for the baseline only: the bits are the same.
template <bool kFast, class F> void vectorize_if(F&& f) {
  if constexpr (kFast) {
    vectorize(std::forward<F>(f));
  } else {
    f();
  }
}

/// Number of tasks of so many elements each that are worth a second thread.
inline std::int64_t grain_of(std::int64_t elements, std::int64_t worth = kGrain) {
  return std::max<std::int64_t>(1, worth / std::max<std::int64_t>(1, elements));
}

/// Calls f(0), ..., f(count - 1) in parallel, in loops compiled as in vectorize_if<kFast>(). A thread gets at
/// least `grain` of them. From::end: each thread goes backwards.
template <bool kFast, From from = From::begin, class F>
void for_each_task(const CpuContext& context, std::int64_t count, std::int64_t grain, const F& f) {
  const auto piece = [&](std::int64_t begin, std::int64_t end) {
    vectorize_if<kFast>([&] {
      if constexpr (from == From::begin) {
        for (std::int64_t i = begin; i < end; ++i) f(i);
      } else {
        for (std::int64_t i = end; i-- > begin;) f(i);
      }
    });
  };
  parallel_for(context, count, grain, piece, from);
}

/// A walk by rows; a single element is also a row.
template <int N> struct Walk : StridedWalk<N> {
  using StridedWalk<N>::rank, StridedWalk<N>::size, StridedWalk<N>::stride;

  Walk(const Shape& shape, const std::array<const Tensor*, N>& operands)
      : Walk(shape, broadcast(shape, operands, std::make_index_sequence<N>())) {}
  Walk(const Shape& shape, const std::array<Strides, N>& strides) : StridedWalk<N>(shape, strides) {
    if (rank == 0) size[rank++] = 1;
  }

  std::int64_t row() const { return size[rank - 1]; }
  std::int64_t rows() const {
    std::int64_t n = 1;
    for (int i = 0; i + 1 < rank; ++i) n *= size[i];
    return n;
  }
  std::int64_t row_stride(int operand) const { return stride[operand][rank - 1]; }

 private:
  template <std::size_t... K>
  static std::array<Strides, N> broadcast(const Shape& shape, const std::array<const Tensor*, N>& operands,
                                          std::index_sequence<K...>) {
    return {broadcast_strides(*operands[K], shape)...};
  }
};

/// Calls f(offsets, n) for every innermost row (or part of one), in parallel. `offsets[k]` is operand k's
/// first element, and walk.row_stride(k) its stride. f is compiled, including the loop over rows, as in
/// vectorize() or vectorize_if<kFast>(), so that short rows need no call each. From `elements` elements on it
/// uses a second thread.
template <bool kFast = true, int N, class F>
void for_each_row(const CpuContext& context, const Walk<N>& walk, const F& f,
                  std::int64_t elements = kGrain) {
  const std::int64_t row = walk.row(), rows = walk.rows();
  if (row <= 0 || rows <= 0) return;
  const bool single = rows == 1;  // then threads share the row itself
  const std::int64_t grain = single ? elements : grain_of(row, elements);
  parallel_for(context, single ? row : rows, grain, [&](std::int64_t begin, std::int64_t end) {
    std::array<std::int64_t, kMaxRank> index{};
    std::array<std::int64_t, N> offset{};
    std::int64_t rest = begin;
    for (int axis = single ? walk.rank - 1 : walk.rank - 2; axis >= 0; --axis) {
      index[axis] = rest % walk.size[axis];
      rest /= walk.size[axis];
      for (int k = 0; k < N; ++k) offset[k] += index[axis] * walk.stride[k][axis];
    }
    const std::int64_t length = single ? end - begin : row, count = single ? 1 : end - begin;
    const auto loop = [&] {
      for (std::int64_t i = 0;;) {
        f(offset, length);
        if (++i == count) break;
        for (int axis = walk.rank - 2; axis >= 0; --axis) {
          for (int k = 0; k < N; ++k) offset[k] += walk.stride[k][axis];
          if (++index[axis] < walk.size[axis]) break;
          for (int k = 0; k < N; ++k) offset[k] -= walk.stride[k][axis] * walk.size[axis];
          index[axis] = 0;
        }
      }
    };
    vectorize_if<kFast>(loop);
  });
}

}  // namespace athanor::cpu
