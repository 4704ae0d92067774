#pragma once

#include <cstddef>
#include <cstring>

#include "simt/emulator/cuda/call.h"
#include "simt/emulator/plain_memory.h"

namespace simt {

struct Launch;
namespace async {
struct BlockWork;
}

/// What runs when a program launches a kernel: what g++ has compiled, or another form of it.
struct KernelForm {
  Kernel kernel;
  const async::BlockWork* work = nullptr;  ///< who does what its blocks start; null: the emulator
};

/// From then on, each launch asks `by` which form of its kernel to run; null: the one that g++ compiled. What
/// `by` throws is the launch's error. Returns the previous `by`.
using Substitute = KernelForm (*)(const Launch& how, const Kernel& kernel);
Substitute substitute_kernels(Substitute by);

/// A kernel with its arguments.
struct KernelCall {
  Kernel kernel;
  const async::BlockWork* work;
  Vector<std::byte> parameters;

  /// Copies the arguments.
  KernelCall(const KernelForm& of, const void* const* arguments) : kernel(of.kernel), work(of.work) {
    const auto all = kernel.parameters;
    if (all.empty()) return;
    parameters.resize(all.back().offset + all.back().bytes);
    for (std::size_t i = 0; i < all.size(); ++i)
      std::memcpy(parameters.data() + all[i].offset, arguments[i], all[i].bytes);
  }

  /// The kernel's body, for the thread that threadIdx and blockIdx name.
  void run() const { kernel.body(kernel.address, parameters.data()); }

  /// Calls f(pointer, position), from 0, for the parameters that are pointers: what the emulator knows of the
  /// memory that a launch names.
  template <class F> void for_each_pointer(F&& f) const {
    for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
      if (!kernel.parameters[i].is_pointer) continue;
      const char* pointer = nullptr;
      std::memcpy(&pointer, parameters.data() + kernel.parameters[i].offset, sizeof(pointer));
      f(pointer, i);
    }
  }
};

}  // namespace simt
