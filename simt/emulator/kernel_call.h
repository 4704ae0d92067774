#pragma once

#include <cstddef>
#include <cstring>

#include "simt/emulator/cuda/call.h"
#include "simt/emulator/plain_memory.h"

namespace simt {

/// A kernel with its arguments.
struct KernelCall {
  Kernel kernel;
  Vector<std::byte> parameters;

  /// Copies the arguments.
  KernelCall(const Kernel& of, const void* const* arguments) : kernel(of) {
    if (of.parameters.empty()) return;
    parameters.resize(of.parameters.back().offset + of.parameters.back().bytes);
    for (std::size_t i = 0; i < of.parameters.size(); ++i)
      std::memcpy(parameters.data() + of.parameters[i].offset, arguments[i], of.parameters[i].bytes);
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
