#include "fast.h"

#include <cstring>
#include <vector>

namespace engine {
namespace {

// Eight floats in a register: an extension of g++ and clang. Its operators work on all eight at once.
using Vector = float __attribute__((vector_size(32)));

Vector load(const float* from) {
  Vector x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
void store(const Vector& x, float* to) {
  std::memcpy(to, &x, sizeof x);
}

// A tile of which c has only the first rows and columns: computed whole, elsewhere.
void edge_tile(std::int64_t depth, const float* left, const float* right, float* c, std::int64_t row_stride,
               std::int64_t rows, std::int64_t columns) {
  float whole[kTileRows * kTileColumns] = {};
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(c + i * row_stride, columns, whole + i * kTileColumns);
  micro_kernel(depth, left, right, whole, kTileColumns);
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(whole + i * kTileColumns, columns, c + i * row_stride);
}

// c += a b of two packed blocks. A panel of b is used for all panels of a before the next.
void multiply_panels(const Matrix& a, const Matrix& b, const float* left, const float* right, float* c,
                     std::int64_t row_stride) {
  const std::int64_t depth = a.columns;
  for (std::int64_t j = 0; j < b.columns; j += kTileColumns) {
    for (std::int64_t i = 0; i < a.rows; i += kTileRows) {
      const float *rows_of_a = left + i * depth, *columns_of_b = right + j * depth;
      float* tile = c + i * row_stride + j;
      const std::int64_t rows = std::min(kTileRows, a.rows - i),
                         columns = std::min(kTileColumns, b.columns - j);
      if (rows == kTileRows && columns == kTileColumns)
        micro_kernel(depth, rows_of_a, columns_of_b, tile, row_stride);
      else
        edge_tile(depth, rows_of_a, columns_of_b, tile, row_stride, rows, columns);
    }
  }
}

std::vector<float> room_for_panels(std::int64_t rows, std::int64_t width, std::int64_t depth) {
  return std::vector<float>(static_cast<std::size_t>((rows + width - 1) / width * width * depth));
}

}  // namespace

void pack(const Matrix& x, std::int64_t width, float* panels) {
  for (std::int64_t top = 0; top < x.rows; top += width) {
    const std::int64_t rows = std::min(width, x.rows - top);
    for (std::int64_t k = 0; k < x.columns; ++k, panels += width) {
      for (std::int64_t i = 0; i < rows; ++i) panels[i] = x.at(top + i, k);
      std::fill(panels + rows, panels + width, 0.0f);
    }
  }
}

void micro_kernel(std::int64_t depth, const float* left, const float* right, float* c,
                  std::int64_t row_stride) {
  Vector sums[kTileRows][2];
#pragma GCC unroll 6
  for (std::int64_t i = 0; i < kTileRows; ++i) {
    sums[i][0] = load(c + i * row_stride);
    sums[i][1] = load(c + i * row_stride + 8);
  }
  for (std::int64_t k = 0; k < depth; ++k, left += kTileRows, right += kTileColumns) {
    const Vector first = load(right), second = load(right + 8);
#pragma GCC unroll 6
    for (std::int64_t i = 0; i < kTileRows; ++i) {
      sums[i][0] += left[i] * first;
      sums[i][1] += left[i] * second;
    }
  }
#pragma GCC unroll 6
  for (std::int64_t i = 0; i < kTileRows; ++i) {
    store(sums[i][0], c + i * row_stride);
    store(sums[i][1], c + i * row_stride + 8);
  }
}

void fast_matmul(const Matrix& a, const Matrix& b, float* c, std::int64_t row_stride) {
  const std::int64_t most_depth = std::min(kBlockDepth, a.columns);
  std::vector<float> left = room_for_panels(std::min(kBlockRows, a.rows), kTileRows, most_depth);
  std::vector<float> right = room_for_panels(std::min(kBlockColumns, b.columns), kTileColumns, most_depth);
  for (std::int64_t j = 0; j < b.columns; j += kBlockColumns) {
    // Upwards in k: each sum continues where the block before ended.
    for (std::int64_t k = 0; k < a.columns; k += kBlockDepth) {
      const Matrix of_b = b.block(k, j, kBlockDepth, kBlockColumns);
      pack(of_b.transposed(), kTileColumns, right.data());
      for (std::int64_t i = 0; i < a.rows; i += kBlockRows) {
        const Matrix of_a = a.block(i, k, kBlockRows, kBlockDepth);
        pack(of_a, kTileRows, left.data());
        multiply_panels(of_a, of_b, left.data(), right.data(), c + i * row_stride + j, row_stride);
      }
    }
  }
}

}  // namespace engine
