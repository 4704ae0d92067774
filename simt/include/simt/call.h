#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include <simt/runtime_api.h>
#include <simt/types.h>

namespace simt {

/// A parameter of a kernel that is a pointer: what the emulator knows of the memory a launch names.
struct PointerParameter {
  const void* value;
  int position;   ///< among the parameters, from 0
  bool writable;  ///< not a pointer to const
};

/// A kernel and its arguments, its types erased. Lives in memory of detail::call_memory().
class Call {
 public:
  /// The kernel's body, for the thread that threadIdx and blockIdx name.
  virtual void run() const = 0;
  virtual std::span<const PointerParameter> pointers() const = 0;

 protected:
  ~Call() = default;
};

namespace detail {

/// Not operator new: tests count that, and a launch on a GPU calls none.
void* call_memory(std::size_t bytes);

template <class P>
inline constexpr bool kNamesMemory = std::is_pointer_v<P> && !std::is_function_v<std::remove_pointer_t<P>>;

template <class... P> class TypedCall final : public Call {
  static_assert((std::is_trivially_destructible_v<P> && ...), "parameters of kernels are plain data");

 public:
  TypedCall(void (*kernel)(P...), const std::tuple<P...>& parameters)
      : kernel_(kernel), parameters_(parameters) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (note<I>(), ...);
    }
    (std::index_sequence_for<P...>());
  }

  void run() const override { std::apply(kernel_, parameters_); }
  std::span<const PointerParameter> pointers() const override { return {pointers_, noted_}; }

 private:
  static constexpr std::size_t kPointers = (std::size_t{kNamesMemory<P>} + ... + 0);

  template <std::size_t I> void note() {
    using T = std::tuple_element_t<I, std::tuple<P...>>;
    if constexpr (kNamesMemory<T>) {
      pointers_[noted_++] = {std::get<I>(parameters_), static_cast<int>(I),
                             !std::is_const_v<std::remove_pointer_t<T>>};
    }
  }

  void (*kernel_)(P...);
  std::tuple<P...> parameters_;
  PointerParameter pointers_[kPointers + 1] = {};
  std::size_t noted_ = 0;
};

/// Takes the call over, whatever comes of it.
cudaError_t queue_launch(const char* name, Call* call, dim3 grid, dim3 block, std::size_t shared_bytes,
                         cudaStream_t stream);

/// Queues a kernel: what <<<grid, block, shared_bytes, stream>>> does.
template <class... P>
[[nodiscard]] cudaError_t queue_call(const char* name, void (*kernel)(P...), dim3 grid, dim3 block,
                                     std::size_t shared_bytes, cudaStream_t stream,
                                     std::tuple<P...> parameters) {
  using Typed = TypedCall<P...>;
  static_assert(alignof(Typed) <= 16);
  Call* call = new (call_memory(sizeof(Typed))) Typed(kernel, parameters);
  return queue_launch(name, call, grid, block, shared_bytes, stream);
}

}  // namespace detail
}  // namespace simt
