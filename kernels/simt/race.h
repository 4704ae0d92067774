#pragma once

#include <cstddef>
#include <string>

// What the executor tells the race detector, which kernels/simt/race.cpp is in the race build; in every other
// build there is none, and nothing is called.

namespace simt {

struct Grid;

namespace race {
#if defined(ATHANOR_SIMT_RACE)
void begin_launch(const Grid& grid, const void* dynamic_shared);
void begin_block();
void run_thread(unsigned thread);  ///< the accesses that follow are its
void block_barrier();
void warp_sync(unsigned warp, unsigned mask);
/// The first race found, in words; empty where there was none.
std::string end_launch();
#else
inline void begin_launch(const Grid&, const void*) {}
inline void begin_block() {}
inline void run_thread(unsigned) {}
inline void block_barrier() {}
inline void warp_sync(unsigned, unsigned) {}
inline std::string end_launch() {
  return {};
}
#endif
}  // namespace race
}  // namespace simt
