#pragma once

#include "machine.h"

/// y = a b. a [rows, depth], b [depth, columns], y [rows, columns]; columns is a multiple of 8.
inline void multiply(const float* a, const float* b, float* y, int rows, int depth, int columns) {
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; j += Vec::kWidth) {
      Vec sum;
      for (int k = 0; k < depth; ++k)
        sum.multiply_add(Vec::broadcast(a + i * depth + k), Vec::load(b + k * columns + j));
      sum.store(y + i * columns + j);
    }
  }
}
