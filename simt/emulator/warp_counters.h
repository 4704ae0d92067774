#pragma once

#include <cstddef>
#include <cstdint>

#include "simt/emulator/counters.h"

// What the executor and the access hooks tell the counters. Race build only; nothing happens while no test
// counts.

namespace simt {

struct Grid;

namespace counting {
#if defined(SIMT_RACE)
bool on();
void begin_grid(const Grid& grid);
void end_thread(unsigned thread);
void end_block();
void access(AccessKind kind, unsigned thread, std::uintptr_t address, std::size_t bytes, const void* pc);
void basic_block(unsigned thread, const void* pc);
#else
inline void begin_grid(const Grid&) {}
inline void end_thread(unsigned) {}
inline void end_block() {}
#endif
}  // namespace counting

}  // namespace simt
