#pragma once

#include <memory>

#include "tensor/cuda/allocator.h"

namespace athanor::cuda {

/// Device memory for one captured graph. A graph replays its kernels on the addresses of the capture, so that
/// memory must stay reserved: the pool frees none while it lives, and serves no other tensors.
///
/// During a capture the system cannot be asked for memory. So run the step under a Use until it no longer
/// grows the pool, then capture it under a Use: the same step finds the same memory. (Under a Use, blocks
/// that another stream has used are not reused before the next Use, whether capturing or not: both behave
/// alike.) Capture with cudaStreamCaptureModeThreadLocal, so that other threads may continue.
///
/// Destroy the pool after the graph, when its last launch is done. Its memory then joins the shared cache;
/// tensors still in it stay valid.
class GraphPool {
 public:
  explicit GraphPool(Device device);
  ~GraphPool();
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  /// Bytes taken from the system.
  std::int64_t held_bytes() const;

  /// While alive, this thread's allocations on the device come from the pool. Nests. Outside a capture it
  /// waits for other streams that use freed blocks of the pool.
  class Use {
   public:
    explicit Use(GraphPool& pool);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Device device_;
    ActivePool saved_;
  };

 private:
  Device device_;
  DeviceAllocator& allocator_;
  std::unique_ptr<Pool> pool_;
};

}  // namespace athanor::cuda
