#include "kernels/simt/access.h"

#include <simt/device.h>

// The functions that g++ has code call that is compiled with -fsanitize=thread: at each load and store, in
// place of each operation of std::atomic, and at the beginning and end of functions; and one more that it
// calls at each basic block. Usually libtsan defines them; it is not linked.
//
// Host code in the .cu files calls them as well, from any thread: outside kernels they do nothing, and
// std::atomic works as always.

namespace simt {
namespace {

struct Watch {
  bool on = false;
  const char* stacks_begin = nullptr;
  const char* stacks_end = nullptr;
};
thread_local constinit Watch watch;

inline void report(const void* address, std::size_t bytes, Access access, const void* pc) {
  if (!watch.on) return;
  const auto* at = static_cast<const char*>(address);
  if (at >= watch.stacks_begin && at < watch.stacks_end) return;
  race::kernel_access(address, bytes, access, pc);
}

}  // namespace

void watch_accesses(bool on, const char* stacks_begin, const char* stacks_end) {
  watch = {on, stacks_begin, stacks_end};
}

void note_atomic(void* address, unsigned bytes, const void* caller) {
  report(address, bytes, Access::atomic, caller);
}

}  // namespace simt

using simt::Access;
using simt::report;
using simt::watch;

#define ATH_CALLER __builtin_return_address(0)

#define ATH_ACCESSES(bytes)                              \
  void __tsan_read##bytes(void* p) {                     \
    report(p, bytes, Access::read, ATH_CALLER);          \
  }                                                      \
  void __tsan_write##bytes(void* p) {                    \
    report(p, bytes, Access::write, ATH_CALLER);         \
  }                                                      \
  void __tsan_unaligned_read##bytes(void* p) {           \
    report(p, bytes, Access::read, ATH_CALLER);          \
  }                                                      \
  void __tsan_unaligned_write##bytes(void* p) {          \
    report(p, bytes, Access::write, ATH_CALLER);         \
  }                                                      \
  void __tsan_volatile_read##bytes(void* p) {            \
    report(p, bytes, Access::read, ATH_CALLER);          \
  }                                                      \
  void __tsan_volatile_write##bytes(void* p) {           \
    report(p, bytes, Access::write, ATH_CALLER);         \
  }                                                      \
  void __tsan_unaligned_volatile_read##bytes(void* p) {  \
    report(p, bytes, Access::read, ATH_CALLER);          \
  }                                                      \
  void __tsan_unaligned_volatile_write##bytes(void* p) { \
    report(p, bytes, Access::write, ATH_CALLER);         \
  }

// The order that is asked for is at most as strong as the one used.
#define ATH_ATOMICS(bits, T)                                                                       \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                         \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                                      \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                \
  T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) {                                      \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                \
  T __tsan_atomic##bits##_fetch_add(volatile T* p, T v, int) {                                     \
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  T __tsan_atomic##bits##_fetch_sub(volatile T* p, T v, int) {                                     \
    return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  T __tsan_atomic##bits##_fetch_and(volatile T* p, T v, int) {                                     \
    return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  T __tsan_atomic##bits##_fetch_or(volatile T* p, T v, int) {                                      \
    return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);                                              \
  }                                                                                                \
  T __tsan_atomic##bits##_fetch_xor(volatile T* p, T v, int) {                                     \
    return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T v, int, int) {  \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T v, int, int) {    \
    return __atomic_compare_exchange_n(p, expected, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
  }

extern "C" {

ATH_ACCESSES(1)
ATH_ACCESSES(2)
ATH_ACCESSES(4)
ATH_ACCESSES(8)
ATH_ACCESSES(16)

void __tsan_read_range(void* p, unsigned long bytes) {
  report(p, bytes, Access::read, ATH_CALLER);
}
void __tsan_write_range(void* p, unsigned long bytes) {
  report(p, bytes, Access::write, ATH_CALLER);
}

ATH_ATOMICS(8, unsigned char)
ATH_ATOMICS(16, unsigned short)
ATH_ATOMICS(32, unsigned)
ATH_ATOMICS(64, unsigned long)
void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

// -fsanitize-coverage=trace-pc: at the beginning of each basic block.
void __sanitizer_cov_trace_pc() {
  if (watch.on) simt::race::kernel_basic_block(ATH_CALLER);
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

}  // extern "C"
