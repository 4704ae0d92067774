#pragma once

#include <cstdint>

#include "tensor/shape.h"

namespace athanor {

/// A dense tensor viewed as [outer, n, inner] around an axis.
struct AxisShape {
  std::int64_t outer = 1, n, inner = 1;

  AxisShape(const Shape& shape, int axis) : n(shape[axis]) {
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  }
};

}  // namespace athanor
