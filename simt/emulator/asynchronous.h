#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "simt/emulator/cuda/site.h"

// Asynchronous work of the block that runs: copies, barriers in memory, wgmma. It is done at issue, or as
// late as it may be, by options().async: copies that a thread waits for itself, in its wait; those that a
// barrier counts, when no thread can go on without them. Until then their target is NaN.

namespace simt {

struct Kernel;
struct MemoryBarrier;

namespace async {

/// One stretch of memory; from null: zeros.
struct Piece {
  char* to;
  const char* from;
  unsigned bytes;
};

/// The work of a thread in groups, of which it waits for all but the latest.
template <class Work> struct Groups {
  std::vector<Work> open;
  std::deque<std::vector<Work>> closed;

  void commit() {
    closed.push_back(std::move(open));
    open.clear();
  }
  /// Calls f(work) for all but the `kept` latest groups, in their order, and forgets them.
  template <class F> void finish(unsigned kept, F&& f) {
    for (; closed.size() > kept; closed.pop_front())
      for (Work& work : closed.front()) f(work);
  }
};

/// Who does it for the blocks of a kernel: of those that g++ has compiled, the functions below. Another form
/// of kernels may have an owner for this of its own.
struct BlockWork {
  /// A block begins, of a launch that asked for so many bytes of dynamic shared memory.
  void (*begin_block)(const Kernel& kernel, unsigned threads, std::size_t dynamic_bytes);
  bool (*run_one)();
  std::string (*end_block)();
  std::string (*what_is_missing)(const void* barrier);
};
extern const BlockWork kEmulated;

bool late();
/// Whether the block that runs has used any of this.
bool& used();
void begin_block(const Kernel& kernel, unsigned threads, std::size_t dynamic_bytes);
/// Does some of the work that barriers count; false: there is none.
bool run_one();
/// What is wrong with how the block ends; empty where nothing is.
std::string end_block();

// Parts of the above.
void begin_block_barriers();
void begin_block_bulk();
void begin_block_warpgroups(unsigned threads);
std::string end_block_barriers();
std::string end_block_warpgroups();

/// In the build with AddressSanitizer, whose report then names the line that started the copy.
void probe(const void* address, std::size_t bytes);

// The asynchronous proxy has a copy of dynamic shared memory of its own, which a fence brings up to date. (Of
// static shared memory its end is unknown: there the proxy sees all. The race build finds a missing
// fence there too.)
const char* seen_by_proxy(const void* shared);
char* proxy_copy(void* shared);  ///< null where it has none

// Barriers.
/// Somebody copies to shared memory in the barrier's current phase; whether an agent of the race detector,
/// and which epoch, stands for it.
struct CountedCopy {
  MemoryBarrier* barrier;
  unsigned agent;
  std::uint32_t epoch;
};
CountedCopy count_copy(const char* instruction, unsigned thread, MemoryBarrier* barrier, const Site& site);
void bytes_came(const CountedCopy& copy, unsigned bytes);
/// "phase 0 of the barrier of k.cu:11, which lacks 1 of 2 arrivals"
std::string what_is_missing(const void* barrier);

}  // namespace async
}  // namespace simt
