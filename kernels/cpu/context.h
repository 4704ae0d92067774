#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/context.h"
#include "kernels/scratch.h"

namespace athanor {

namespace cpu {
class PrimitiveCache;  // kernels/cpu/primitive_cache.h
class ThreadTeam;      // kernels/cpu/thread_team.h
}  // namespace cpu

/// Memory for each slot of parallel work (kernels/cpu/parallel.h), kept between kernels. So a thread finds
/// its own in its core's cache; that of a Scratch may be in another core's, which takes longer.
class SlotScratch {
 public:
  /// Makes room for `bytes` in each of `slots`.
  void reserve(std::int64_t slots, std::size_t bytes);
  template <class T> T* as(std::int64_t slot) const {
    return slots_[static_cast<std::size_t>(slot)].memory->as<T>();
  }

 private:
  struct Slot {
    std::size_t bytes = 0;
    std::unique_ptr<Scratch> memory = {};
  };
  std::vector<Slot> slots_;
};

/// The state of CPU kernels. One per host thread; cpu_context() is this thread's.
class CpuContext : public ContextBase {
 public:
  CpuContext();
  ~CpuContext();

  /// Threads a kernel may use; 1 in builds without OpenMP.
  int threads() const { return threads_; }
  void set_threads(int threads);

  Scratch scratch(std::size_t bytes) const { return Scratch(bytes, kCpu); }
  /// At least `bytes` for each slot, not initialized, valid until the next call.
  const SlotScratch& slot_scratch(std::int64_t slots, std::size_t bytes) const {
    slot_scratch_.reserve(slots, bytes);
    return slot_scratch_;
  }
  cpu::PrimitiveCache& primitives();
  /// Threads for loops, or null where OpenMP's do them: see LoopThreads.
  cpu::ThreadTeam* team() const { return team_.get(); }

 private:
  int threads_;
  mutable SlotScratch slot_scratch_;
  StepState step_state_;
  std::unique_ptr<cpu::PrimitiveCache> primitives_;
  std::unique_ptr<cpu::ThreadTeam> team_;
};

/// The CPU's context of the calling thread.
CpuContext& cpu_context();

}  // namespace athanor
