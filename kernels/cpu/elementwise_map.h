#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"
#include "kernels/elementwise_ops.h"
#include "kernels/numbers.h"

// Shared by the elementwise kernels: y = f(x...) over tensors of any strides.

namespace athanor::cpu {

// Number of elements below which a second thread costs more than it saves. Ops of one instruction are
// memory-bound, and waking a thread takes time: relu of 100,000 elements takes 35 us alone, 78 us on two
// threads.
template <class Op>
inline constexpr std::int64_t kOpGrain =
    std::is_same_v<Op, kernels::Relu> || std::is_same_v<Op, kernels::Add> ||
            std::is_same_v<Op, kernels::Sub> || std::is_same_v<Op, kernels::Mul>
        ? 4 * kGrain
        : kGrain;

// y[i] = f(x[i]...) for n adjacent elements: the only part of an op compiled per type and kind of CPU.
using ElementLoop = void (*)(const void* f, const std::byte* const* x, std::byte* y, std::int64_t n);

// Runs the loop over all of y, which is dense, and operands broadcast to it. From `grain` elements on it uses
// a second thread.
void run_elements(CpuContext& context, ElementLoop loop, const void* f, const Tensor& y,
                  std::span<const Tensor* const> x, std::int64_t grain);

namespace detail {

template <class T, class To, class F, std::size_t... K>
void element_loop(const void* function, const std::byte* const* x, std::byte* y, std::int64_t n) {
  using A = kernels::ComputeType<T>;
  const F& f = *static_cast<const F*>(function);
  const T* const in[] = {reinterpret_cast<const T*>(x[K])...};
  To* const out = reinterpret_cast<To*>(y);
  vectorize_if<kFastType<T>>([&] {
    for (std::int64_t i = 0; i < n; ++i) out[i] = To(f(A(in[K][i])...));
  });
}

template <class T, class To, class F, std::size_t... K>
constexpr ElementLoop loop_of(std::index_sequence<K...>) {
  return element_loop<T, To, F, K...>;
}

}  // namespace detail

// y = f(x...) for x of T, broadcast to y, which is dense and of To. From kElements elements on it uses a
// second thread.
template <class T, class To = T, std::int64_t kElements = kGrain, class F, class... Tensors>
void map(CpuContext& context, const F& f, const Tensor& y, const Tensors&... x) {
  const std::array<const Tensor*, sizeof...(x)> operands{&x...};
  run_elements(context, detail::loop_of<T, To, F>(std::index_sequence_for<Tensors...>()), &f, y, operands,
               kElements);
}

}  // namespace athanor::cpu
