#include "tensor_core.h"

__global__ void tensor_core(const float* a, const float* b, float* y, int cols) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  const int top = static_cast<int>(blockIdx.x) * 16;
  const auto left = [&](int row, int column) { return __float_as_uint(a[(top + row) * cols + column]); };
  const auto right = [&](int row, int column) { return __float_as_uint(b[row * 8 + column]); };

  float sums[4] = {};
  for (int depth = 0; depth < cols; depth += 8) {
    const std::uint32_t fragment[4] = {left(g, depth + t), left(g, depth + t + 4), left(g + 8, depth + t),
                                       left(g + 8, depth + t + 4)};
    simt::mma<simt::Factor::tf32>(sums, fragment, right(depth + t, g), right(depth + t + 4, g));
  }
  for (int e = 0; e < 4; ++e) {
    const int row = g + e / 2 * 8, column = t + e % 2 * 4;
    y[(top + row) * 8 + column] = sums[e];
  }
}

void lab::run(Size size, std::span<const float* const> x, float* y) {
  launch({"tensor_core", static_cast<unsigned>(size.rows / 16), 32}, tensor_core, x[0], x[1], y, size.cols);
}
