#pragma once

#include <cstdint>

#include "fast.h"

namespace engine {

/// A product on the device: c [m, n] += a [m, k] b [k, n]. Arrays are dense, row by row, in device memory,
/// each of fewer than 2^31 elements.
struct ProductSize {
  int m, n, k;
};

// Each function launches one kernel on the default stream, and does not wait for it. A launch that CUDA
// refuses throws std::runtime_error.

/// One thread for each element of c; the lanes of a warp have adjacent columns. Products are added to what c
/// holds, in the order of k.
void matmul_simple(ProductSize size, const float* a, const float* b, float* c);

/// The same sums, but a block of threads reads tiles of a and b into shared memory, and multiplies from
/// there.
void matmul_tiled(ProductSize size, const float* a, const float* b, float* c);

/// On tensor cores, mma.sync.m16n8k16. The factors are bits of f16, b by columns: a [m, k], b [n, k]. k is a
/// multiple of kMmaDepth, and the arrays begin at a multiple of 16 bytes. Sums are f32; in which order their
/// products are added, the hardware leaves open.
constexpr int kMmaDepth = 64;
void matmul_mma(ProductSize size, const std::uint16_t* a, const std::uint16_t* b, float* c);

/// What the engine's `product` may be: c += a b of matrices of the host, of any strides. Copies them to the
/// device, runs matmul_tiled, and copies c back. Without rows, columns or depth nothing happens.
void cuda_matmul(const Matrix& a, const Matrix& b, float* c, std::int64_t row_stride);

/// The same by matmul_mma: a and b are rounded to f16, and their depth is filled up with zeros to a multiple
/// of kMmaDepth.
void cuda_matmul_f16(const Matrix& a, const Matrix& b, float* c, std::int64_t row_stride);

}  // namespace engine
