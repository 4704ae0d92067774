#pragma once

#include <cstdint>
#include <vector>

#include "tensor/philox.h"
#include "tensor/tensor.h"

namespace athanor::test {

inline constexpr DType kFloating[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

/// How a case's elements lie in memory.
enum class Layout : std::uint8_t { dense, misaligned, transposed, gapped };

struct ShapeCase {
  Shape shape;
  Layout layout = Layout::dense;
};

/// The shapes every op is tried on: empty, one element, scalar, odd, larger than a vector register, of
/// several threads' size; and starting off alignment, transposed, or with gaps between rows.
inline std::vector<ShapeCase> shape_cases() {
  return {
      {{}},
      {{0}},
      {{1}},
      {{3, 0, 2}},
      {{1, 1, 1}},
      {{7}},
      {{33}},
      {{2, 3}},
      {{5, 7, 3}},
      {{2, 1, 3, 1}},
      {{1, 2, 1, 3, 1, 2, 1, 2}},
      {{67, 1031}},
      {{33}, Layout::misaligned},
      {{5, 17}, Layout::misaligned},
      {{1, 1}, Layout::transposed},
      {{5, 7}, Layout::transposed},
      {{3, 4, 5}, Layout::transposed},
      {{261, 303}, Layout::transposed},
      {{9}, Layout::gapped},
      {{4, 5}, Layout::gapped},
      {{3, 4, 5}, Layout::gapped},
      {{0, 5}, Layout::gapped},
  };
}

/// An uninitialised tensor of that shape and layout.
inline Tensor make(const ShapeCase& wanted, DType dtype) {
  const Shape& shape = wanted.shape;
  switch (wanted.layout) {
    case Layout::dense: break;
    case Layout::misaligned:
      return Tensor::empty({shape.numel() + 1}, {dtype, kCpu})
          .view_as_strided(shape, contiguous_strides(shape), 1);
    case Layout::transposed: {
      Shape reversed = shape;
      for (int i = 0; i < shape.rank(); ++i) reversed[i] = shape[shape.rank() - 1 - i];
      const Strides dense = contiguous_strides(reversed);
      Strides strides = shape;
      for (int i = 0; i < shape.rank(); ++i) strides[i] = dense[shape.rank() - 1 - i];
      return Tensor::empty(reversed, {dtype, kCpu}).view_as_strided(shape, strides, 0);
    }
    case Layout::gapped: {
      Shape padded = shape;
      padded[shape.rank() - 1] = 2 * shape[shape.rank() - 1] + 3;
      Strides strides = contiguous_strides(padded);
      strides[shape.rank() - 1] = 2;
      return Tensor::empty(padded, {dtype, kCpu}).view_as_strided(shape, strides, 1);
    }
  }
  return Tensor::empty(shape, {dtype, kCpu});
}

/// Calls visit(element offset) for every element, in row-major order.
template <class F> void for_each_offset(const Tensor& x, const F& visit) {
  for (std::int64_t flat = 0; flat < x.numel(); ++flat) {
    std::int64_t rest = flat, offset = 0;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      offset += rest % x.shape()[axis] * x.strides()[axis];
      rest /= x.shape()[axis];
    }
    visit(offset);
  }
}

/// Fills x, whatever its strides, with uniform numbers in [low, high); integers are rounded down.
inline void fill_uniform(const Tensor& x, RandomKey key, double low = -1, double high = 1) {
  std::uint64_t at = 0;
  dispatch_any(x.dtype(), [&]<class T>() {
    for_each_offset(x, [&](std::int64_t offset) {
      const double value = low + (high - low) * random_uniform(philox_word(key, at++));
      if constexpr (sizeof(T) == 2) {
        x.data<T>()[offset] = T(static_cast<float>(value));
      } else if constexpr (std::is_same_v<T, bool>) {
        x.data<T>()[offset] = value > (low + high) / 2;
      } else if constexpr (std::is_integral_v<T>) {
        x.data<T>()[offset] = static_cast<T>(std::floor(value));
      } else {
        x.data<T>()[offset] = static_cast<T>(value);
      }
    });
  });
}

/// A filled tensor of that shape, layout and dtype.
inline Tensor filled(const ShapeCase& wanted, DType dtype, RandomKey key = {}, double low = -1,
                     double high = 1) {
  Tensor x = make(wanted, dtype);
  fill_uniform(x, key, low, high);
  return x;
}

}  // namespace athanor::test
