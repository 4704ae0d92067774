#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include <simt/call.h>
#include <simt/types.h>

namespace simt {

/// A launch whose time has come.
struct Grid {
  const char* kernel;
  const Call* call;
  std::size_t call_bytes;
  dim3 grid, block;
  std::size_t shared_bytes;
};

/// A kernel broke a rule of CUDA; what() is the whole diagnosis, with kernel, block, threads and lines.
class KernelFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Runs every thread of the grid. Throws KernelFault. One at a time: the caller holds the runtime's lock.
void run_grid(const Grid& grid);

/// What has been run so far.
struct ExecutorStats {
  std::uint64_t launches = 0, threads = 0, switches = 0, block_barriers = 0, warp_collectives = 0;
};
const ExecutorStats& executor_stats();

}  // namespace simt
