#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <cuda_runtime.h>

#include "simt/ptx/arithmetic.h"

// Loads, stores and atomic operations of translated kernels. An address is a number, a pointer of the host;
// memory of parameters, and shared memory once instructions.h has checked it, is a pointer already.

namespace simt::ptx {

#define SIMT_HERE const Site& site = Site::current()
#define SIMT_INLINE inline __attribute__((always_inline))

template <class T> std::uint64_t address_of(const T* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

template <class... P> std::uint64_t address_of(void (*function)(P...)) {
  return reinterpret_cast<std::uintptr_t>(function);
}

/// What is of so many bytes lies at a multiple of them.
SIMT_INLINE char* memory(std::uint64_t address, std::size_t bytes, const Site& site) {
  if (address % bytes != 0) [[unlikely]]
    fail_kernel("a misaligned address", site);
  return reinterpret_cast<char*>(address);
}
SIMT_INLINE const std::byte* memory(const std::byte* parameter, std::size_t, const Site&) {
  return parameter;
}
SIMT_INLINE std::byte* memory(std::byte* parameter, std::size_t, const Site&) {
  return parameter;
}
SIMT_INLINE char* memory(char* shared, std::size_t, const Site&) {
  return shared;
}

template <class T, class Address> SIMT_INLINE T load(Address from, SIMT_HERE) {
  T value;
  std::memcpy(&value, memory(from, sizeof(T), site), sizeof(T));
  return value;
}
template <class T, std::size_t N, class Address> SIMT_INLINE std::array<T, N> load(Address from, SIMT_HERE) {
  std::array<T, N> values;
  std::memcpy(&values, memory(from, sizeof(values), site), sizeof(values));
  return values;
}

template <class T, class Address>
SIMT_INLINE void store(Address to, std::type_identity_t<T> value, SIMT_HERE) {
  std::memcpy(memory(to, sizeof(T), site), &value, sizeof(T));
}
template <class T, class Address, std::size_t N>
SIMT_INLINE void store(Address to, const T (&values)[N], SIMT_HERE) {
  std::memcpy(memory(to, sizeof(values), site), values, sizeof(values));
}

/// One thread of the host runs all threads of a kernel: a plain operation is atomic.
template <class T, class Address, class F>
SIMT_INLINE T read_modify_write(Address at, F f, const Site& site) {
  auto* const to = memory(at, sizeof(T), site);
  T old;
  std::memcpy(&old, to, sizeof(T));
  const T now = f(old);
  std::memcpy(to, &now, sizeof(T));
  return old;
}
#define SIMT_ATOMIC(name, result)                                                     \
  template <class T, class Address>                                                   \
  SIMT_INLINE T atomic_##name(Address at, std::type_identity_t<T> value, SIMT_HERE) { \
    return read_modify_write<T>(                                                      \
        at, [&]([[maybe_unused]] T old) { return static_cast<T>(result); }, site);    \
  }
SIMT_ATOMIC(add, old + value)
SIMT_ATOMIC(min, value < old ? value : old)
SIMT_ATOMIC(max, old < value ? value : old)
SIMT_ATOMIC(and, old& value)
SIMT_ATOMIC(or, old | value)
SIMT_ATOMIC(xor, old ^ value)
SIMT_ATOMIC(exch, value)
#undef SIMT_ATOMIC
template <class T, class Address>
SIMT_INLINE T atomic_cas(Address at, std::type_identity_t<T> compare, std::type_identity_t<T> value,
                         SIMT_HERE) {
  return read_modify_write<T>(
      at, [&](T old) { return old == compare ? value : old; }, site);
}

/// trap: the kernel ends with an error.
[[noreturn]] inline void trap(SIMT_HERE) {
  fail_kernel("trap", site);
}

#undef SIMT_HERE
#undef SIMT_INLINE

}  // namespace simt::ptx
