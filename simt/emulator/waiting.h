#pragma once

#include <string>
#include <vector>

#include "simt/emulator/cuda/site.h"

// What the threads of a block do together, and wait for: block barriers, warp collectives, barriers in
// memory. block_barrier() and warp_together() of simt/emulator/cuda/device.h are here, too.

namespace simt {

/// "k.cu:20"
std::string place(const Site& site);

/// An instruction that the lanes of a warp execute together, when all 32 have come.
struct WarpWork {
  const char* name;
  unsigned first_thread;  // lane i is thread first_thread + i
  Site site;
  const void* pc;  // race build: where the kernel goes on
  void* brought[32];

  template <class T> T& of(unsigned lane) const { return *static_cast<T*>(brought[lane]); }
};
using WarpFunction = void (*)(const WarpWork& warp);

/// Waits until all 32 lanes are at this instruction; the last of them calls the function, once.
void execute_together(const char* instruction, WarpFunction function, void* brought, const Site& site,
                      const void* frame);

/// Waits for release_waiting() of that barrier, which also says who waited.
void wait_in_memory(const void* barrier, const Site& site);
std::vector<unsigned> release_waiting(const void* barrier);

namespace waiting {
void begin_block(unsigned threads);
/// A thread has left the kernel: a barrier must not wait for it.
void thread_left();
/// Why no thread can go on, though not all are done.
std::string stuck();
}  // namespace waiting

}  // namespace simt
