#pragma once

#include <cstddef>
#include <cstdint>

// Where instrumented kernels, in the race build, report their loads and stores.

namespace simt {

enum class Access : std::uint8_t { read, write, atomic };

/// While on, accesses of this thread of the host are those of the kernel it runs; `stacks` are its threads'
/// own, which no other thread reaches.
#if defined(SIMT_RACE)
void watch_accesses(bool on, const char* stacks_begin = nullptr, const char* stacks_end = nullptr);
#else
inline void watch_accesses(bool, const char* = nullptr, const char* = nullptr) {}
#endif

namespace race {
/// `pc` is the address that the call of the access returns to.
void kernel_access(const void* address, std::size_t bytes, Access access, const void* pc);
void kernel_basic_block(const void* pc);
}  // namespace race

}  // namespace simt
