#include "tensor/shape.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace athanor {

std::string Dims::str() const {
  return fmt::format("[{}]", fmt::join(begin(), end(), ", "));
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  std::int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

int normalize_axis(int axis, int rank, const char* op) {
  ATH_CHECK(axis >= -rank && axis < rank, "{}: axis must be in [{}, {}), but got {}", op, -rank, rank, axis);
  return axis < 0 ? axis + rank : axis;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  const int shift = longer.rank() - shorter.rank();
  Shape result = longer;
  for (int i = 0; i < shorter.rank(); ++i) {
    const std::int64_t x = longer[i + shift], y = shorter[i];
    ATH_CHECK(x == y || x == 1 || y == 1, "{}: shapes must broadcast, but got {} and {}", op, a, b);
    result[i + shift] = x == 1 ? y : x;
  }
  return result;
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.rank() > to.rank()) return false;
  const int shift = to.rank() - from.rank();
  for (int i = 0; i < from.rank(); ++i) {
    if (from[i] != to[i + shift] && from[i] != 1) return false;
  }
  return true;
}

}  // namespace athanor
