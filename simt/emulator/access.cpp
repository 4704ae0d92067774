#include "simt/emulator/access.h"

#include "simt/emulator/cuda/device.h"

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

#define SIMT_CALLER __builtin_return_address(0)

#define SIMT_ACCESS(name, bytes, access)           \
  void __tsan_##name##bytes(void* p) {             \
    report(p, bytes, Access::access, SIMT_CALLER); \
  }
#define SIMT_ACCESSES(bytes)                        \
  SIMT_ACCESS(read, bytes, read)                    \
  SIMT_ACCESS(write, bytes, write)                  \
  SIMT_ACCESS(unaligned_read, bytes, read)          \
  SIMT_ACCESS(unaligned_write, bytes, write)        \
  SIMT_ACCESS(volatile_read, bytes, read)           \
  SIMT_ACCESS(volatile_write, bytes, write)         \
  SIMT_ACCESS(unaligned_volatile_read, bytes, read) \
  SIMT_ACCESS(unaligned_volatile_write, bytes, write)

// The order that is asked for is at most as strong as the one used.
#define SIMT_ATOMIC(bits, T, operation, builtin)                 \
  T __tsan_atomic##bits##_##operation(volatile T* p, T v, int) { \
    return builtin(p, v, __ATOMIC_SEQ_CST);                      \
  }
#define SIMT_EXCHANGE(bits, T, strength, weak)                                                        \
  bool __tsan_atomic##bits##_compare_exchange_##strength(volatile T* p, T* expected, T v, int, int) { \
    return __atomic_compare_exchange_n(p, expected, v, weak, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);     \
  }
#define SIMT_ATOMICS(bits, T)                                 \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {    \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);              \
  }                                                           \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) { \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                 \
  }                                                           \
  SIMT_ATOMIC(bits, T, exchange, __atomic_exchange_n)         \
  SIMT_ATOMIC(bits, T, fetch_add, __atomic_fetch_add)         \
  SIMT_ATOMIC(bits, T, fetch_sub, __atomic_fetch_sub)         \
  SIMT_ATOMIC(bits, T, fetch_and, __atomic_fetch_and)         \
  SIMT_ATOMIC(bits, T, fetch_or, __atomic_fetch_or)           \
  SIMT_ATOMIC(bits, T, fetch_xor, __atomic_fetch_xor)         \
  SIMT_EXCHANGE(bits, T, strong, false)                       \
  SIMT_EXCHANGE(bits, T, weak, true)

extern "C" {

SIMT_ACCESSES(1)
SIMT_ACCESSES(2)
SIMT_ACCESSES(4)
SIMT_ACCESSES(8)
SIMT_ACCESSES(16)

void __tsan_read_range(void* p, unsigned long bytes) {
  report(p, bytes, Access::read, SIMT_CALLER);
}
void __tsan_write_range(void* p, unsigned long bytes) {
  report(p, bytes, Access::write, SIMT_CALLER);
}

SIMT_ATOMICS(8, unsigned char)
SIMT_ATOMICS(16, unsigned short)
SIMT_ATOMICS(32, unsigned)
SIMT_ATOMICS(64, unsigned long)
void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

// -fsanitize-coverage=trace-pc: at the beginning of each basic block.
void __sanitizer_cov_trace_pc() {
  if (watch.on) simt::race::kernel_basic_block(SIMT_CALLER);
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

}  // extern "C"
