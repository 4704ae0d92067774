#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/step_state.h"
#include "tensor/tensor.h"

namespace athanor {

namespace cpu {
class PrimitiveCache;  // kernels/cpu/onednn.h
}

/// Memory a kernel works in, from the context that lent it; given back at the end of the scope.
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

/// What a CPU kernel runs with. One per host thread; cpu_context() is this thread's.
class CpuContext {
 public:
  CpuContext();
  ~CpuContext();
  CpuContext(const CpuContext&) = delete;
  CpuContext& operator=(const CpuContext&) = delete;

  /// Threads a kernel may use; 1 in builds without OpenMP.
  int threads() const { return threads_; }
  void set_threads(int threads);

  /// Same bits for the same inputs and thread count. (Kernels that are always so ignore it.)
  bool deterministic = false;

  /// How many random ops this thread has run in the current step: part of the key of the next one's numbers.
  /// The trainer sets it to 0 when a step begins.
  std::int64_t random_ops() const { return random_ops_; }
  void set_random_ops(std::int64_t count) { random_ops_ = count; }
  std::int64_t next_random_op() { return random_ops_++; }

  /// The step kernels read their scalars from.
  StepState& step() { return *step_; }
  /// Makes `step` (which must outlive its use here) the current one; null restores the context's own.
  void bind_step(StepState* step) { step_ = step ? step : &own_step_; }

  Scratch scratch(std::size_t bytes) const { return Scratch(bytes, kCpu); }
  cpu::PrimitiveCache& primitives();

 private:
  int threads_;
  std::int64_t random_ops_ = 0;
  StepState own_step_;
  StepState* step_ = &own_step_;
  std::unique_ptr<cpu::PrimitiveCache> primitives_;
};

CpuContext& cpu_context();

/// oneDNN primitives compiled so far, over all contexts: 0 per step after warm-up.
std::int64_t primitives_created();

/// True while this thread runs inside oneDNN, which keeps the arguments of every call in a map of its own: a
/// test that counts global operator new leaves those out.
bool inside_onednn();

/// Calls f(context) with the concrete context of the device: the library's only switch over devices.
/// Kernels are templates on the context, specialised in kernels/cpu/ and kernels/cuda/; one that lacks a
/// backend is a link error that names it.
template <class F> decltype(auto) on_device(Device device, F&& f) {
  if (device.is_cpu()) return f(cpu_context());
  detail::fail<BackendError>(
      "this build has no backend for {}; configure with the cuda preset, or use --device cpu", device.str());
}

/// Whether a kernel replaces what its output holds, or adds to it.
enum class Write : std::uint8_t { overwrite, accumulate };

}  // namespace athanor
