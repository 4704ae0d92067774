#pragma once  // Explained in docs/step_without_a_host.md.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "tensor/device.h"

// CUDA graphs: a GPU's work, captured from its stream once and queued again by one call, on the addresses of
// the capture. So the memory of the capture must stay reserved.

namespace athanor {

namespace cuda {
struct Pool;  // tensor/cuda/chunks.h
}

/// Captured work. A handle.
class Graph {
 public:
  /// Queues the work on the current stream. Allocates nothing and never waits.
  void launch() const;
  /// Number of kernels, copies and fills.
  std::size_t nodes() const;

 private:
  friend class GraphMemory;
  struct Native;
  explicit Graph(std::shared_ptr<const Native> native) : native_(std::move(native)) {}
  std::shared_ptr<const Native> native_;
};

/// Device memory for graphs that never run at the same time: it frees none while it lives, and serves no
/// other tensors.
///
/// During a capture the system cannot be asked for memory. So run the step under a Use until the memory no
/// longer grows, then capture it: the same step finds the same memory. (Under a Use, blocks that another
/// stream has used are not reused before the next Use, whether capturing or not: both behave alike.)
///
/// Destroy it after the graphs, when their last launch is done. The memory then joins the shared cache;
/// tensors still in it stay valid.
class GraphMemory {
 public:
  /// `device` must be a GPU.
  explicit GraphMemory(Device device);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  /// Captures the device's work that `work` queues on the current stream, none of which runs; other threads
  /// may use the device. Throws what `work` throws, and Error if that would wait for the device or needs more
  /// memory.
  Graph capture(const std::function<void()>& work);

  /// Bytes taken from the system.
  std::int64_t held_bytes() const;
  /// Identifies the set of blocks in use, but for bad luck. A graph may be launched only while it is that of
  /// the end of its capture: the graph writes to blocks that were free then.
  std::uint64_t in_use() const;

  /// While alive, this thread's allocations on the device come from this memory. Nests. Outside a capture it
  /// waits for other streams that use freed blocks of the memory.
  class Use {
   public:
    explicit Use(GraphMemory& memory);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Device device_;
    cuda::Pool* saved_;
  };

 private:
  Device device_;
  std::unique_ptr<cuda::Pool> pool_;
};

}  // namespace athanor
