#pragma once

#include <cstdint>
#include <type_traits>

#include "simt/emulator/cuda/site.h"
#include "simt/emulator/cuda/types.h"

// What kernels are written in. A kernel is an ordinary function here: its threads are run one after the
// other by simt/emulator/executor.cpp, and switched where they wait for each other.

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

// One copy for all blocks will do, for they run one after the other. The race build tells shared memory from
// other memory by its address: in the thread-local block. (AddressSanitizer puts red zones round ordinary
// statics only, so the other builds have those.)
#if defined(SIMT_RACE)
#define __shared__ static thread_local
#else
#define __shared__ static
#endif

// Plain globals, rewritten at each switch: a debugger can say `break k.cu:20 if threadIdx.x == 37`.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace simt {

/// This block's dynamic shared memory.
void* dynamic_shared_memory();

/// Waits for the whole block; how many of its threads brought a true predicate.
int block_barrier(bool predicate, const Site& site);

/// What the lanes of a warp do together.
enum class Together : std::uint8_t {
  sync,
  shuffle,
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  ballot,
  instruction  ///< of those in simt/include/simt/instructions.h
};

/// Waits until every lane of `mask` is here. Then *out becomes what lane `source` brought as *in; for ballot,
/// the lanes whose bool *in is true. Lanes must agree about what, mask, bytes and place.
void warp_together(Together what, unsigned mask, const void* in, unsigned bytes, unsigned source, void* out,
                   const Site& site);

/// Of the running thread in its warp.
unsigned lane();

/// Ends the launch with this diagnosis, and where it was found.
[[noreturn]] void fail_kernel(const char* what, const Site& site);

#if defined(SIMT_RACE)
#define SIMT_UNSEEN __attribute__((no_sanitize_thread, noinline))
/// Tells the race detector of an atomic access.
void note_atomic(void* address, unsigned bytes, const void* caller);
#else
#define SIMT_UNSEEN inline
inline void note_atomic(void*, unsigned, const void*) {}
#endif

template <class T, class F> SIMT_UNSEEN T read_modify_write(T* address, F f) {
  note_atomic(address, sizeof(T), __builtin_return_address(0));
  const T old = *address;
  *address = f(old);
  return old;
}
#undef SIMT_UNSEEN

template <class T>
__forceinline__ auto shuffled(Together what, unsigned mask, T value, unsigned source, const Site& site) {
  static_assert(std::is_arithmetic_v<T>, "warp shuffles take numbers");
  auto promoted = +value;
  decltype(promoted) result;
  warp_together(what, mask, &promoted, sizeof(promoted), source, &result, site);
  return result;
}

/// The first lane of this thread's group of `width` lanes.
inline unsigned group_of(unsigned lane, int width, const Site& site) {
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
    fail_kernel("the width of a warp shuffle must be a power of two up to 32", site);
  }
  return lane & ~(static_cast<unsigned>(width) - 1);
}

}  // namespace simt

#define SIMT_HERE simt::Site site = simt::Site::current()

// Barriers.

__forceinline__ void __syncthreads(SIMT_HERE) {
  simt::block_barrier(false, site);
}
__forceinline__ int __syncthreads_count(int predicate, SIMT_HERE) {
  return simt::block_barrier(predicate != 0, site);
}
__forceinline__ int __syncthreads_or(int predicate, SIMT_HERE) {
  return simt::block_barrier(predicate != 0, site) != 0;
}
__forceinline__ int __syncthreads_and(int predicate, SIMT_HERE) {
  return simt::block_barrier(predicate == 0, site) == 0;
}
__forceinline__ void __syncwarp(unsigned mask = ~0u, SIMT_HERE) {
  simt::warp_together(simt::Together::sync, mask, nullptr, 0, 0, nullptr, site);
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// Warps.

template <class T>
__forceinline__ auto __shfl_sync(unsigned mask, T value, int source, int width = 32, SIMT_HERE) {
  const unsigned first = simt::group_of(simt::lane(), width, site);
  const unsigned from = first | (static_cast<unsigned>(source) & (static_cast<unsigned>(width) - 1));
  return simt::shuffled(simt::Together::shuffle, mask, value, from, site);
}
template <class T>
__forceinline__ auto __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMT_HERE) {
  const unsigned lane = simt::lane(), first = simt::group_of(lane, width, site);
  const unsigned from = lane - first < delta ? lane : lane - delta;
  return simt::shuffled(simt::Together::shuffle_up, mask, value, from, site);
}
template <class T>
__forceinline__ auto __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMT_HERE) {
  const unsigned lane = simt::lane(), first = simt::group_of(lane, width, site);
  const unsigned from = lane - first + delta >= static_cast<unsigned>(width) ? lane : lane + delta;
  return simt::shuffled(simt::Together::shuffle_down, mask, value, from, site);
}
template <class T>
__forceinline__ auto __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, SIMT_HERE) {
  const unsigned lane = simt::lane(), first = simt::group_of(lane, width, site);
  const unsigned other = lane ^ static_cast<unsigned>(bits);
  const unsigned from = other < first + static_cast<unsigned>(width) ? other : lane;
  return simt::shuffled(simt::Together::shuffle_xor, mask, value, from, site);
}
__forceinline__ unsigned __ballot_sync(unsigned mask, int predicate, SIMT_HERE) {
  const bool mine = predicate != 0;
  unsigned lanes;
  simt::warp_together(simt::Together::ballot, mask, &mine, sizeof(mine), 0, &lanes, site);
  return lanes;
}
__forceinline__ int __any_sync(unsigned mask, int predicate, SIMT_HERE) {
  return __ballot_sync(mask, predicate, site) != 0;
}
__forceinline__ int __all_sync(unsigned mask, int predicate, SIMT_HERE) {
  return __ballot_sync(mask, predicate == 0, site) == 0;
}
// Atomics: plain operations, for one thread of the host runs all threads of a kernel.

#define SIMT_ATOMIC(name, result)                                                                \
  template <class T> __forceinline__ T atomic##name(T* address, std::type_identity_t<T> value) { \
    return simt::read_modify_write(address, [value](T old) { return static_cast<T>(result); });  \
  }
SIMT_ATOMIC(Add, old + value)
SIMT_ATOMIC(Sub, old - value)
SIMT_ATOMIC(Min, value < old ? value : old)
SIMT_ATOMIC(Max, old < value ? value : old)
SIMT_ATOMIC(And, old& value)
SIMT_ATOMIC(Or, old | value)
SIMT_ATOMIC(Xor, old ^ value)
SIMT_ATOMIC(Exch, ((void)old, value))
SIMT_ATOMIC(Inc, old >= value ? T{0} : old + 1)
SIMT_ATOMIC(Dec, old == 0 || old > value ? value : old - 1)
#undef SIMT_ATOMIC
template <class T>
__forceinline__ T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  return simt::read_modify_write(address, [=](T old) { return old == compare ? value : old; });
}

[[noreturn]] inline void __trap(SIMT_HERE) {
  simt::fail_kernel("__trap()", site);
}

#undef SIMT_HERE
