#pragma once

#include <algorithm>
#include <cstdint>

namespace engine {

/// A matrix somewhere in memory: element (i, j) is data[i * row_stride + j * column_stride].
struct Matrix {
  const float* data = nullptr;
  std::int64_t rows = 0, columns = 0, row_stride = 0, column_stride = 1;

  float at(std::int64_t i, std::int64_t j) const { return data[i * row_stride + j * column_stride]; }
  Matrix transposed() const { return {data, columns, rows, column_stride, row_stride}; }
  /// The part from element (i, j) on that has `most_rows` rows and `most_columns` columns, or fewer where the
  /// matrix ends.
  Matrix block(std::int64_t i, std::int64_t j, std::int64_t most_rows, std::int64_t most_columns) const {
    return {data + i * row_stride + j * column_stride, std::min(most_rows, rows - i),
            std::min(most_columns, columns - j), row_stride, column_stride};
  }
};

/// The tile of sums that stays in registers: 6 rows of 16 columns are 12 vectors of 8 floats, of the 16 that
/// AVX2 has.
constexpr std::int64_t kTileRows = 6, kTileColumns = 16;
/// What is packed at a time. Of the right matrix a panel, kBlockDepth x kTileColumns floats (16 KB), stays in
/// the first cache; of the left a block, kBlockRows x kBlockDepth (96 KB), in the second; of the right a
/// block, kBlockDepth x kBlockColumns (1 MB), in the third.
constexpr std::int64_t kBlockRows = 96, kBlockDepth = 256, kBlockColumns = 1024;

/// Writes x in panels of `width` rows: panel p holds rows p width, p width + 1 and so on, and is stored
/// column by column. Element (i, k) of x goes to panels[(i / width * x.columns + k) * width + i % width];
/// rows that the last panel lacks become zeros. `panels` has room for x.rows, rounded up to a multiple of
/// width, times x.columns.
void pack(const Matrix& x, std::int64_t width, float* panels);

/// Adds a product to a whole tile: c[i * row_stride + j] += the sum over k < depth of left[k * kTileRows + i]
/// right[k * kTileColumns + j], for i < kTileRows, j < kTileColumns. Products are added to what c holds, one
/// after another in the order of k.
void micro_kernel(std::int64_t depth, const float* left, const float* right, float* c,
                  std::int64_t row_stride);

/// c += a b: c has a.rows rows of b.columns floats, row_stride apart, and shares no memory with a and b;
/// a.columns = b.rows. Products are added to what c holds, one after another in the order of k.
void fast_matmul(const Matrix& a, const Matrix& b, float* c, std::int64_t row_stride);

/// What matmul() and conv2d() call for each pair of matrices. Another one may be set while no other thread
/// computes.
using Product = void (*)(const Matrix& a, const Matrix& b, float* c, std::int64_t row_stride);
inline Product product = fast_matmul;

}  // namespace engine
