#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "simt/emulator/cuda/runtime_api.h"
#include "simt/emulator/cuda/types.h"

namespace simt {

struct Launch;

/// A parameter of a kernel: where it lies in the bytes of all of them, which are laid out as in PTX.
struct Parameter {
  std::uint32_t offset, bytes;
  bool is_pointer;  ///< to memory that the launch names thereby
};

/// Runs one thread of a kernel, that of threadIdx and blockIdx.
using ThreadBody = void (*)(const void* kernel, const std::byte* parameters);

/// What a launch calls: a kernel of the program, its types erased.
struct Kernel {
  const void* address;  ///< of its function, as g++ has compiled it
  ThreadBody body;      ///< calls that function
  std::span<const Parameter> parameters;
};

/// The one way into the emulator, as cudaLaunchKernel is into CUDA: queues a kernel, whose arguments are
/// copied from where `arguments` point to. Who has another form of a kernel, such as its PTX, translated,
/// finds it by the symbol at kernel.address, and puts a body of its own here: that is called once for each
/// thread.
cudaError_t launch_kernel(cudaStream_t stream, const Launch& how, const Kernel& kernel,
                          const void* const* arguments);

namespace detail {

template <class Indices, class... P> struct Signature;
template <std::size_t... I, class... P> struct Signature<std::index_sequence<I...>, P...> {
  static_assert((std::is_trivially_destructible_v<P> && ...), "parameters of kernels are plain data");
  static_assert(((alignof(P) <= alignof(std::max_align_t)) && ...));

  static constexpr auto kParameters = [] {
    std::array<Parameter, sizeof...(P)> all{};
    [[maybe_unused]] std::size_t end = 0;
    ((end = (end + alignof(P) - 1) / alignof(P) * alignof(P),
      all[I] = {static_cast<std::uint32_t>(end), sizeof(P),
                std::is_pointer_v<P> && !std::is_function_v<std::remove_pointer_t<P>>},
      end += sizeof(P)),
     ...);
    return all;
  }();

  static void call(const void* kernel, [[maybe_unused]] const std::byte* parameters) {
    reinterpret_cast<void (*)(P...)>(reinterpret_cast<std::uintptr_t>(kernel))(
        *reinterpret_cast<const P*>(parameters + kParameters[I].offset)...);
  }
};

template <class... P> Kernel kernel_of(void (*kernel)(P...)) {
  using Of = Signature<std::index_sequence_for<P...>, P...>;
  return {reinterpret_cast<const void*>(kernel), &Of::call, Of::kParameters};
}

}  // namespace detail
}  // namespace simt
