#pragma once  // Explained in docs/tensor_cores_by_hand.md.

#include <cuda_runtime.h>

// Which element of a matrix a lane has in which register, as PTX lays out the fragments of mma.m16n8k32,
// mma.m16n8k16, mma.m16n8k8 and wgmma. Written down once: for kernels, and for the emulator, which puts
// matrices together from registers by it.

namespace simt {

struct Element {
  int row, column;
};

/// The types of the factors of a tensor core's product. Sums are f32; of u8, whose right factor is i8, i32.
enum class Factor : unsigned char { f16, bf16, tf32, u8 };

/// Depth of one instruction: 32 bytes of a factor's row.
__host__ __device__ constexpr int depth_of(Factor type) {
  return type == Factor::tf32 ? 8 : type == Factor::u8 ? 32 : 16;
}
/// Elements of a factor in a register.
__host__ __device__ constexpr int per_register(Factor type) {
  return depth_of(type) / 8;
}

namespace fragment {

/// a [16, depth]: element `part` of register i of 4, low bits first.
__host__ __device__ constexpr Element left(Factor type, int lane, int i, int part) {
  return {lane / 4 + i % 2 * 8, (lane % 4 + i / 2 * 4) * per_register(type) + part};
}

/// b [depth, 8]: the same of register i of 2.
__host__ __device__ constexpr Element right(Factor type, int lane, int i, int part) {
  return {(lane % 4 + i * 4) * per_register(type) + part, lane / 4};
}

/// c [16, 8]: number i of 4. A wgmma's [64, N] has i beyond: 8 columns for each 4 numbers, 16 rows a warp.
__host__ __device__ constexpr Element sums(int lane, int i) {
  return {lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2};
}

/// What ldmatrix moves: number `half` of a lane's register, of an 8 x 8 matrix of 16-bit numbers; where it is
/// transposed on the way, that matrix's line is the column.
__host__ __device__ constexpr Element eight_by_eight(int lane, int half) {
  return {lane / 4, lane % 4 * 2 + half};
}

}  // namespace fragment
}  // namespace simt
