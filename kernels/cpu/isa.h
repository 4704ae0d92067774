#pragma once

/// Compiles a function for AVX-512, whatever the build's baseline. Call it only if has_avx512().
#define ATH_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]]

/// The same with its products of 8-bit integers. Only if has_avx512_vnni().
#define ATH_AVX512_VNNI [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")]]

/// The same with products and roundings of bf16. Only if has_avx512() and has_avx512_bf16().
#define ATH_AVX512_BF16 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma,avx512bf16")]]

/// The same for AVX2, FMA and F16C, which a build for older CPUs does not have by itself. Only if has_avx2().
#define ATH_AVX2 [[gnu::target("avx2,fma,f16c")]]

namespace athanor::cpu {

/// Whether the CPU has AVX2, FMA and F16C.
bool has_avx2();
/// Whether this process may run AVX-512 (F, BW, DQ, VL): the CPU supports it, and ATHANOR_MAX_CPU_ISA is not
/// AVX2. Fixed at start-up.
bool has_avx512();
/// Whether it also multiplies 8-bit integers (AVX512_VNNI).
bool has_avx512_vnni();
/// Whether the CPU multiplies bf16 (AVX512_BF16; CPUs with AMX also have it).
bool has_avx512_bf16();
/// Whether it looks up bytes in tables of vectors (AVX512_VBMI).
bool has_avx512_vbmi();
/// Whether it multiplies tiles of bf16, many times as fast as f32 (AMX).
bool has_amx_bf16();
/// The same of 8-bit integers.
bool has_amx_int8();

#if defined(__GNUC__) && !defined(__clang__)

// `flatten` inlines everything f calls: loops are twice as fast with it.
template <class F> [[gnu::flatten, gnu::noinline]] void run_baseline(F& f) {
  f();
}

#else

template <class F> void run_baseline(F& f) {
  f();
}

#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(ATHANOR_ONE_ISA)

// The baseline of the build is x86-64-v3. Everything f calls is inlined into a function compiled for
// x86-64-v4. So AVX-512 code exists only under this function's name: no inline function shared with the rest
// of the program can become a copy that an older CPU cannot run.
template <class F>
[[gnu::target("arch=x86-64-v4,prefer-vector-width=512"), gnu::flatten, gnu::noinline]] void run_avx512(F& f) {
  f();
}

#endif

/// Runs f(), a loop over plain arrays, compiled for the widest vectors of this CPU. All versions have the
/// same arithmetic in the same order (contraction is off), so the bits do not depend on the CPU. This is for
/// loops that the compiler vectorises by itself; where values must stay in registers, or be fused or
/// transposed, write them in vectors (vector.h).
template <class F> void vectorize(F&& f) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(ATHANOR_ONE_ISA)
  if (has_avx512()) return run_avx512(f);
#endif
  run_baseline(f);
}

}  // namespace athanor::cpu
