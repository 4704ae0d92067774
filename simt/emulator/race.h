#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "simt/emulator/access.h"
#include "simt/emulator/plain_memory.h"

// What the runtime and the executor tell the race detector, which race.cpp is in the race build.
// In every other build there is none, and these calls do nothing.

namespace simt {

struct Grid;
struct Op;

namespace race {

/// How far each stream had come, by the stream's slot: everything up to there is before the owner of the
/// clock. What happens-before means here: the same stream and queued earlier, an event between, or a host
/// that waited.
using Clock = Vector<std::uint64_t>;

/// How an instruction's access differs from a thread's own.
struct Asynchronous {
  bool by_proxy = false;   ///< through the asynchronous proxy
  bool under_way = false;  ///< until settle()
  unsigned agent = 0;      ///< or until somebody knows of what this agent did up to `epoch`
  std::uint32_t epoch = 0;
};

#if defined(SIMT_RACE)
inline constexpr bool kOn = true;

void join(Clock& to, const Clock& from);
/// The host has waited for all this.
void host_waited(const Clock& clock);
/// What the host queues next comes after all this.
const Clock& host_clock();

// An op that runs: begin, its accesses, end. One at a time.
void begin_op(std::uint32_t slot, std::uint64_t stream_id, const Op& op);
void access_range(const void* begin, std::size_t bytes, bool write);
/// The first race found since, in words; empty where there was none.
std::string end_op();
/// Memory that is handed out or taken back has no history.
void forget(const void* begin, std::size_t bytes);

// A kernel, inside an op.
void begin_grid(const Grid& grid, const void* dynamic_shared);
void begin_block();
void run_thread(unsigned thread);  ///< the accesses that follow are its
void block_barrier();
void warp_sync(unsigned warp, unsigned mask);
void end_grid();

/// An access that an instruction makes for a thread, from the kernel's line that goes on at `pc`.
void access_by(unsigned thread, const void* address, std::size_t bytes, Access access, const void* pc,
               const Asynchronous& how = {});
/// What is under way for that thread, from that line, is over, and it knows.
void settle(unsigned thread, const void* address, std::size_t bytes, const void* pc);
class BlockOrder;
BlockOrder& block_order();
/// Somebody who does asynchronous work; `waited_for_by` is for reports: "a wait for its mbarrier".
unsigned new_agent(const char* waited_for_by);
/// Whether accesses are counted, not searched for races.
bool counts();
bool is_shared(const void* address);
#else
inline constexpr bool kOn = false;

inline void join(Clock&, const Clock&) {}
inline void host_waited(const Clock&) {}
inline void begin_op(std::uint32_t, std::uint64_t, const Op&) {}
inline void access_range(const void*, std::size_t, bool) {}
inline std::string end_op() {
  return {};
}
inline void forget(const void*, std::size_t) {}
inline void begin_grid(const Grid&, const void*) {}
inline void begin_block() {}
inline void run_thread(unsigned) {}
inline void block_barrier() {}
inline void warp_sync(unsigned, unsigned) {}
inline void end_grid() {}
inline void access_by(unsigned, const void*, std::size_t, Access, const void*, const Asynchronous& = {}) {}
inline void settle(unsigned, const void*, std::size_t, const void*) {}
inline bool counts() {
  return false;
}
inline bool is_shared(const void*) {
  return true;
}
#endif

}  // namespace race
}  // namespace simt
