#pragma once  // Explained in docs/what_emulation_cannot_see.md.

#include <cstdint>
#include <type_traits>

#include "simt/fragments.h"
#include "simt/instruction.h"

// Tensor cores, a warp at a time: matrices from shared memory to registers (ldmatrix), and their products
// (mma.sync). All 32 lanes of a warp call each together. Fragments: simt/fragments.h.

namespace simt {

/// Whether this code may call mma() for factors of that type; ldmatrix comes with f16.
__host__ __device__ constexpr bool has_mma(Factor type) {
  return kArchitecture >= (type == Factor::f16 ? 75 : 80);
}

/// kCount 8 x 8 matrices of 16-bit numbers from shared memory (ldmatrix): lane l gives the address of line
/// l % 8 of matrix l / 8, 16 bytes aligned to 16, and gets numbers 2 (l % 4), + 1 of row l / 4 of each.
/// Lines are the rows, or else the columns. Addresses of lanes beyond 8 kCount are not used. sm_75.
template <int kCount, bool kColumns = false>
__device__ __forceinline__ void ldmatrix(std::uint32_t (&parts)[kCount], const void* line SIMT_SITE) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
  const unsigned address = shared_address(line);
#define SIMT_LDMATRIX(form, registers, ...)                                     \
  asm volatile("ldmatrix.sync.aligned.m8n8." form ".shared.b16 {" registers ";" \
               : __VA_ARGS__                                                    \
               : "r"(address)                                                   \
               : "memory")
  if constexpr (kCount == 4 && !kColumns) {
    SIMT_LDMATRIX("x4", "%0, %1, %2, %3}, [%4]", "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]),
                  "=r"(parts[3]));
  } else if constexpr (kCount == 4) {
    SIMT_LDMATRIX("x4.trans", "%0, %1, %2, %3}, [%4]", "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]),
                  "=r"(parts[3]));
  } else if constexpr (kCount == 2 && !kColumns) {
    SIMT_LDMATRIX("x2", "%0, %1}, [%2]", "=r"(parts[0]), "=r"(parts[1]));
  } else if constexpr (kCount == 2) {
    SIMT_LDMATRIX("x2.trans", "%0, %1}, [%2]", "=r"(parts[0]), "=r"(parts[1]));
  } else if constexpr (!kColumns) {
    SIMT_LDMATRIX("x1", "%0}, [%1]", "=r"(parts[0]));
  } else {
    SIMT_LDMATRIX("x1.trans", "%0}, [%1]", "=r"(parts[0]));
  }
#undef SIMT_LDMATRIX
#elif !defined(__CUDACC__)
  emulated::ldmatrix(parts, kCount, kColumns, line, site);
#else
  (void)parts, (void)line;
#endif
}

/// What products of that type are summed in.
template <Factor kType> using SumOf = std::conditional_t<kType == Factor::u8, int, float>;

/// c [16, 8] += a [16, depth] b [depth, 8], spread over a warp (mma.sync.m16n8k16; for tf32 m16n8k8, for u8
/// m16n8k32). Products are exact, sums f32. In which order they are added up, and how rounded on the way, PTX
/// leaves open. Of tf32, which is a float, the lower 13 bits must not matter: round by to_tf32(). Of u8 sums
/// are exact, too, modulo 2^32. sm_80; f16 from sm_75.
template <Factor kType>
__device__ __forceinline__ void mma(SumOf<kType> (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1 SIMT_SITE) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define SIMT_MMA(form, sum)                                                                       \
  asm("mma.sync.aligned." form " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : sum(c[0]), sum(c[1]), sum(c[2]), sum(c[3])                                                \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (kType == Factor::f16) SIMT_MMA("m16n8k16.row.col.f32.f16.f16.f32", "+f");
  if constexpr (kType == Factor::bf16) SIMT_MMA("m16n8k16.row.col.f32.bf16.bf16.f32", "+f");
  if constexpr (kType == Factor::tf32) SIMT_MMA("m16n8k8.row.col.f32.tf32.tf32.f32", "+f");
  if constexpr (kType == Factor::u8) SIMT_MMA("m16n8k32.row.col.s32.u8.s8.s32", "+r");
#undef SIMT_MMA
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
  static_assert(kType == Factor::f16);
#define SIMT_MMA(a0, a1, b)                                                                                  \
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                       \
      : "r"(a0), "r"(a1), "r"(b))
  SIMT_MMA(a[0], a[1], b0);
  SIMT_MMA(a[2], a[3], b1);
#undef SIMT_MMA
#elif !defined(__CUDACC__)
  emulated::mma(kType, c, a, b0, b1, site);
#else
  (void)c, (void)a, (void)b0, (void)b1;
#endif
}

/// The nearest tf32, ties away from zero, as the bits of a float (cvt.rna.tf32.f32). sm_80.
__device__ __forceinline__ std::uint32_t to_tf32(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#elif !defined(__CUDACC__)
  return emulated::to_tf32(x);
#else
  (void)x;
  return 0;
#endif
}

/// c + the products of four bytes each: a's without a sign, b's with one, modulo 2^32 (dp4a.u32.s32).
__device__ __forceinline__ int dot_of_bytes(std::uint32_t a, std::uint32_t b, int c) {
#if defined(__CUDA_ARCH__)
  int sum;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
#elif !defined(__CUDACC__)
  return emulated::dot_of_bytes(a, b, c);
#else
  (void)a, (void)b;
  return c;
#endif
}

}  // namespace simt
