#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/step_state.h"
#include "tensor/tensor.h"

namespace athanor {

namespace cpu {
class PrimitiveCache;  // kernels/cpu/onednn.h
class ThreadTeam;      // kernels/cpu/thread_team.h
}  // namespace cpu
namespace cuda {
class Vendor;  // kernels/cuda/vendor.h
}

/// Temporary memory of a kernel, freed at the end of the scope.
class Scratch {
 public:
  Scratch(std::size_t bytes, Device device) : block_(allocator_of(device).allocate(bytes)), device_(device) {}
  ~Scratch() { allocator_of(device_).free(block_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T> T* as() const { return static_cast<T*>(block_.data); }

 private:
  Block block_;
  Device device_;
};

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

/// The state that kernels of every backend run with.
class ContextBase {
 public:
  ContextBase(const ContextBase&) = delete;
  ContextBase& operator=(const ContextBase&) = delete;

  /// Same bits for the same inputs and thread count. (Kernels that always are deterministic ignore it.)
  bool deterministic = false;

  /// Number of random ops of this thread in the current step: part of the next op's random key. The trainer
  /// resets it to 0 when a step begins.
  std::int64_t random_ops() const { return random_ops_; }
  void set_random_ops(std::int64_t count) { random_ops_ = count; }
  std::int64_t next_random_op() { return random_ops_++; }

  /// The StepState from which kernels read their scalars, in memory of the context's device.
  StepState* step() const { return step_; }
  /// Makes `step` (which must outlive its use here) the current one; null restores the context's own.
  void bind_step(StepState* step) { step_ = step ? step : own_step_; }

 protected:
  ContextBase() = default;
  void set_own_step(StepState* step) { own_step_ = step_ = step; }

 private:
  std::int64_t random_ops_ = 0;
  StepState* own_step_ = nullptr;
  StepState* step_ = nullptr;
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
  /// Threads for loops (kernels/cpu/parallel.h), or null where OpenMP's do them. oneDNN has OpenMP's threads;
  /// unless these were told to wait passively, they spin for milliseconds after its work, and would keep
  /// others from their cores.
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

/// The state of CUDA kernels: this thread's current stream on one device. One per host thread and device;
/// cuda_context(device) is this thread's.
class CudaContext : public ContextBase {
 public:
  explicit CudaContext(Device device);
  ~CudaContext();

  Device device() const { return device_; }
  /// Compute capability, 90 for sm_90.
  int sm() const { return sm_; }
  int multiprocessors() const { return multiprocessors_; }
  /// cuBLASLt and cuDNN may round f32 inputs to 10 fraction bits (TF32) to use tensor cores.
  bool tf32 = false;

  /// The cudaStream_t that kernels use: that of current_stream(device()).
  void* native_stream() const;

  /// The thread count of the CPU context: for work of the host during device work.
  int threads() const;
  void set_threads(int threads);

  /// Device memory, valid for the work queued in this scope.
  Scratch scratch(std::size_t bytes) const { return Scratch(bytes, device_); }
  /// Handles, plans and workspace of cuBLASLt and cuDNN.
  cuda::Vendor& vendor();

 private:
  Device device_;
  int sm_ = 0, multiprocessors_ = 1;
  std::unique_ptr<Scratch> own_step_memory_;
  std::unique_ptr<cuda::Vendor> vendor_;
};

/// A GPU's context of the calling thread, which becomes current there. Throws ArgumentError if the device is
/// no GPU.
CudaContext& cuda_context(Device device);

/// What one launch on a GPU takes, as its kernel's contract has it. Bytes of global memory count once for
/// each launch, however often its threads access them.
struct KernelCost {
  const char* kernel = "";  ///< as it is launched: "batch_norm_sums"
  std::int64_t bytes_read = 0, bytes_written = 0;
  std::int64_t flops = 0;    ///< of products of matrices and convolutions; else 0
  DType dtype = DType::f32;  ///< of their factors
  bool assumed = false;      ///< of cuDNN or cuBLASLt: inputs and outputs once
};

/// Computes nothing, but says what the kernels of a GPU would take: kernels/account/ has a cost for every
/// contract. While an AccountScope is alive it replaces cpu_context() on its thread, so memory of the CPU
/// stands for that of the GPU; nothing reads or writes it.
class AccountContext : public CpuContext {
 public:
  explicit AccountContext(std::function<void(const KernelCost&)> listener) : add(std::move(listener)) {}

  std::function<void(const KernelCost&)> add;
  bool vendor = true;         ///< products and convolutions are cuBLASLt's and cuDNN's
  int multiprocessors = 132;  ///< of the GPU, on which the partial results of some kernels depend
};

namespace detail {
extern constinit thread_local AccountContext* account;
}

/// While it lives, this thread counts the costs of kernels.
class AccountScope {
 public:
  explicit AccountScope(AccountContext& context) : before_(std::exchange(detail::account, &context)) {}
  ~AccountScope() { detail::account = before_; }
  AccountScope(const AccountScope&) = delete;
  AccountScope& operator=(const AccountScope&) = delete;

 private:
  AccountContext* before_;
};

/// oneDNN primitives compiled so far, over all contexts: 0 per step after warm-up.
std::int64_t primitives_created();
/// How often this process has converted an operand to a layout of oneDNN's own, or back.
std::int64_t reorders_run();

/// Whether a kernel overwrites its output or adds to it.
enum class Write : std::uint8_t { overwrite, accumulate };

}  // namespace athanor
