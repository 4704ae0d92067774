#pragma once

#include <memory>

#include "tensor/cuda/allocator.h"

namespace athanor::cuda {

/// Device memory for one captured graph. A graph replays its kernels on the addresses it was captured with,
/// so what they worked in must stay theirs: the pool gives nothing back while it lives, and nobody else's
/// tensors come from it.
///
/// While a stream is captured the system cannot be asked for memory. So run the step under a Use until one
/// step grows the pool no more, then capture it under a Use: the same step finds the same memory again.
/// (Under a Use, blocks another stream has used are not reused before the next Use, in a capture or not: the
/// two behave alike.) Capture with cudaStreamCaptureModeThreadLocal, so that other threads may go on.
///
/// Destroy the pool after the graph, when its last launch is done. Its memory then joins what is cached for
/// everybody; tensors still in it stay valid.
class GraphPool {
 public:
  explicit GraphPool(Device device);
  ~GraphPool();
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  /// Bytes it has taken from the system.
  std::int64_t held_bytes() const;

  /// While alive, what this thread allocates on the device comes from the pool. Nests. Outside a capture it
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
