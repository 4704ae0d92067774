#pragma once  // Explained in docs/what_nvcc_wrote.md.

#include <cstdint>

#include "simt/fragments.h"
#include "simt/instruction.h"
#include "simt/swizzle.h"

// Tensor cores, a warpgroup at a time (wgmma): four warps, 128 threads whose first is a multiple of 128,
// multiply matrices of shared memory while they do something else. All of them call each function here
// together. sm_90a.
//
//   wgmma_fence(sums);                       // before the first, and after sums were touched
//   wgmma<Factor::f16, 64>(sums, a, b);      // sums [64, 64] += a [64, 16] b [16, 64]
//   wgmma_commit();
//   wgmma_wait<0>(sums);                     // until then no thread may touch sums, or write a and b
//
// It reads through the asynchronous proxy: what threads have written is fenced first (fence_proxy_async()).

namespace simt {

/// Along which axis the elements of a factor are dense: the depth, or its rows (of b, columns).
enum class Major : unsigned char { depth, rows };

/// Where a factor lies in shared memory, as wgmma wants to be told. Pieces are 16 bytes; 8 of them, `line`
/// bytes apart, are 8 rows (major depth) or 8 depths (major rows). line is bytes_of(swizzle).
///   major depth, no swizzle: next pieces along the depth are `leading` apart, next 8 rows `stride`;
///   major depth, swizzled:   a line is the row; next 8 rows are `stride` apart, `leading` is not used;
///   major rows, no swizzle:  next pieces along the rows are `stride` apart, next 8 depths `leading`;
///   major rows, swizzled:    a line is rows of one depth; next such rows are `leading` apart, next 8 depths
///                            `stride`.
struct FactorDescriptor {
  std::uint64_t bits;
#if !defined(__CUDACC__)
  const char* start;
#endif

  /// The same, from so many bytes further on: another depth of a swizzled line.
  __device__ __forceinline__ FactorDescriptor moved(int bytes) const {
    FactorDescriptor to = *this;
    to.bits += static_cast<std::uint64_t>(bytes >> 4);
#if !defined(__CUDACC__)
    to.start += bytes;
#endif
    return to;
  }
};

/// `start` is a multiple of 16, in the first line of the swizzle's pattern (simt/swizzle.h). Distances are
/// multiples of 16 bytes below 2^18.
__device__ __forceinline__ FactorDescriptor factor_descriptor(const void* start, Swizzle swizzle,
                                                              unsigned leading_bytes, unsigned stride_bytes) {
  const auto field = [](std::uint64_t bytes) { return (bytes & 0x3ffff) >> 4; };
  const std::uint64_t mode = swizzle == Swizzle::none ? 0 : 4 - static_cast<unsigned>(swizzle);
  const std::uint64_t rest = field(leading_bytes) << 16 | field(stride_bytes) << 32 | mode << 62;
#if defined(__CUDACC__)
  return {field(shared_address(start)) | rest};
#else
  const auto* const from = static_cast<const char*>(start);
  return {field(reinterpret_cast<std::uintptr_t>(from)) | rest, from};
#endif
}

// The registers of the sums, 32 at a time, as they are numbered in PTX and as operands.
#define SIMT_D0                                                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SIMT_D1                                                                      \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SIMT_D2                                                                      \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SIMT_D3                                                                                  \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SIMT_F4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SIMT_F16(i) SIMT_F4(i), SIMT_F4(i + 4), SIMT_F4(i + 8), SIMT_F4(i + 12)
#define SIMT_F32(i) SIMT_F16(i), SIMT_F16(i + 16)
#define SIMT_UNWRAP(...) __VA_ARGS__
// F(N, the sums, their operands, the next five operands)
#define SIMT_EACH_N(F)                                                                         \
  F(8, "%0, %1, %2, %3", (SIMT_F4(0)), "%4", "%5", "%6", "%7", "%8")                           \
  F(64, SIMT_D0, (SIMT_F32(0)), "%32", "%33", "%34", "%35", "%36")                             \
  F(128, SIMT_D0 ", " SIMT_D1, (SIMT_F32(0), SIMT_F32(32)), "%64", "%65", "%66", "%67", "%68") \
  F(256, SIMT_D0 ", " SIMT_D1 ", " SIMT_D2 ", " SIMT_D3,                                       \
    (SIMT_F32(0), SIMT_F32(32), SIMT_F32(64), SIMT_F32(96)), "%128", "%129", "%130", "%131", "%132")

/// sums [64, N] += a b, or = where not `accumulate`: a [64, depth], b [depth, N], depth 16 or of tf32 8; N
/// is 8, 64, 128 or 256. A thread has of the sums what fragment::sums() says, its warp 16 rows of the 64.
template <Factor kType, int N, Major kLeft = Major::depth, Major kRight = Major::depth>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], FactorDescriptor a, FactorDescriptor b,
                                      bool accumulate = true SIMT_SITE) {
  static_assert(kType != Factor::u8, "sums are f32");
  static_assert(kType != Factor::tf32 || (kLeft == Major::depth && kRight == Major::depth),
                "tf32 lies along the depth");
  static_assert(N == 8 || N == 64 || N == 128 || N == 256);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kTurnA = kLeft == Major::rows, kTurnB = kRight == Major::rows;
#define SIMT_ISSUE(form, sums, outs, r0, r1, r2, tail, ...)                                                \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " r2 ", 0;\nwgmma.mma_async.sync.aligned." form " {" sums \
               "}, " r0 ", " r1 ", p, 1, 1" tail ";\n}"                                                    \
               : SIMT_UNWRAP outs                                                                          \
               : "l"(a.bits), "l"(b.bits), "r"(static_cast<int>(accumulate))__VA_ARGS__                    \
               : "memory")
#define SIMT_WGMMA(n, sums, outs, r0, r1, r2, r3, r4)                                                 \
  if constexpr (N == n && kType == Factor::f16)                                                       \
    SIMT_ISSUE("m64n" #n "k16.f32.f16.f16", sums, outs, r0, r1, r2, ", " r3 ", " r4, , "n"(kTurnA),   \
               "n"(kTurnB));                                                                          \
  if constexpr (N == n && kType == Factor::bf16)                                                      \
    SIMT_ISSUE("m64n" #n "k16.f32.bf16.bf16", sums, outs, r0, r1, r2, ", " r3 ", " r4, , "n"(kTurnA), \
               "n"(kTurnB));                                                                          \
  if constexpr (N == n && kType == Factor::tf32)                                                      \
    SIMT_ISSUE("m64n" #n "k8.f32.tf32.tf32", sums, outs, r0, r1, r2, "");
  SIMT_EACH_N(SIMT_WGMMA)
#undef SIMT_WGMMA
#undef SIMT_ISSUE
#elif !defined(__CUDACC__)
  emulated::wgmma(kType, N, d, kLeft, kRight, a, b, accumulate, site);
#else
  (void)d, (void)a, (void)b, (void)accumulate;
#endif
}

/// From here on a thread has that many registers, a multiple of 8 (setmaxnreg): fewer than before, or more,
/// for which others must have lowered theirs. All warps of a warpgroup call it. The emulator does nothing.
template <int kCount> __device__ __forceinline__ void lower_registers() {
  static_assert(kCount % 8 == 0 && kCount >= 24 && kCount <= 256);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kCount));
#endif
}
template <int kCount> __device__ __forceinline__ void raise_registers() {
  static_assert(kCount % 8 == 0 && kCount >= 24 && kCount <= 256);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kCount));
#endif
}

namespace detail {
/// Keeps what is done with the sums on its side of what stands beside it.
template <int kCount> __device__ __forceinline__ void pin([[maybe_unused]] float (&d)[kCount]) {
#if defined(__CUDA_ARCH__)
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i]) : : "memory");
#endif
}
}  // namespace detail

/// Before the first wgmma, and between any access to its registers and the next wgmma of them; but not
/// between two of the same shape that add to the same sums.
template <int kCount> __device__ __forceinline__ void wgmma_fence(float (&d)[kCount] SIMT_SITE) {
  detail::pin(d);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
#elif !defined(__CUDACC__)
  emulated::wgmma_fence(site);
#endif
  detail::pin(d);
}

/// What the warpgroup has started since the last group is a group.
__device__ __forceinline__ void wgmma_commit(SIMT_ONLY_SITE) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
#elif !defined(__CUDACC__)
  emulated::wgmma_commit(site);
#endif
}

/// Waits until all groups are done but the kGroups latest.
template <int kGroups, int kCount> __device__ __forceinline__ void wgmma_wait(float (&d)[kCount] SIMT_SITE) {
  detail::pin(d);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kGroups) : "memory");
#elif !defined(__CUDACC__)
  emulated::wgmma_wait(kGroups, site);
#endif
  detail::pin(d);
}

#undef SIMT_EACH_N
#undef SIMT_UNWRAP
#undef SIMT_F32
#undef SIMT_F16
#undef SIMT_F4
#undef SIMT_D3
#undef SIMT_D2
#undef SIMT_D1
#undef SIMT_D0

}  // namespace simt
