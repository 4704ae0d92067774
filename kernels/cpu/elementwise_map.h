#pragma once

#include <type_traits>

#include "kernels/cpu/iterate.h"
#include "kernels/elementwise_ops.h"
#include "kernels/numbers.h"

// What the elementwise kernels have in common: y = f(x...) over tensors of any strides.

namespace athanor::cpu {

// Elements worked on at a time. Strided and repeated operands are first laid out densely in a buffer of that
// size, so that the maths of each op is compiled once, as a vector loop.
constexpr std::int64_t kChunk = 512;

// Elements of an op below which a second thread costs more than it saves. Ops of one instruction only stream
// memory, and a thread has to be woken first: relu of 100,000 elements takes 35 us alone, 78 us on two
// threads.
template <class Op>
inline constexpr std::int64_t kOpGrain =
    std::is_same_v<Op, kernels::Relu> || std::is_same_v<Op, kernels::Add> ||
            std::is_same_v<Op, kernels::Sub> || std::is_same_v<Op, kernels::Mul>
        ? 4 * kGrain
        : kGrain;

// Bytes: an array of a half type would be cleared first.
template <class T> struct Buffer {
  alignas(64) std::byte bytes[kChunk * static_cast<std::int64_t>(sizeof(T))];
};

template <class T> const T* chunk(const T* x, std::int64_t step, std::int64_t n, Buffer<T>& buffer) {
  if (step == 1) return x;
  T* dense = reinterpret_cast<T*>(buffer.bytes);
  if (step == 0) {
    const T value = *x;
    for (std::int64_t i = 0; i < n; ++i) dense[i] = value;
  } else {
    for (std::int64_t i = 0; i < n; ++i) dense[i] = x[i * step];
  }
  return dense;
}

namespace detail {

template <class T, class To, std::int64_t kElements, class F, std::size_t... K>
void map(CpuContext& context, const F& f, const Tensor& y, const std::array<const Tensor*, sizeof...(K)>& x,
         std::index_sequence<K...>) {
  using A = kernels::ComputeType<T>;
  constexpr int N = sizeof...(K);
  const Walk<N + 1> walk(y.shape(), {x[K]..., &y});
  const std::array<const T*, N> from{x[K]->template data<T>()...};
  const std::array<std::int64_t, N> step{walk.row_stride(K)...};
  To* to = y.data<To>();
  const auto row = [=](const auto& offset, std::int64_t n) {
    std::array<Buffer<T>, N> buffer;
    for (std::int64_t at = 0; at < n; at += kChunk) {
      const std::int64_t count = std::min(n - at, kChunk);
      const T* in[] = {chunk(from[K] + offset[K] + at * step[K], step[K], count, buffer[K])...};
      To* out = to + offset[N] + at;
      for (std::int64_t i = 0; i < count; ++i) out[i] = To(f(A(in[K][i])...));
    }
  };
  for_each_row<kFastType<T>>(context, walk, row, kElements);
}

}  // namespace detail

// y = f(x...) for x of T, broadcast to y, which is dense and of To. A second thread is used from
// kElements elements on.
template <class T, class To = T, std::int64_t kElements = kGrain, class F, class... Tensors>
void map(CpuContext& context, const F& f, const Tensor& y, const Tensors&... x) {
  detail::map<T, To, kElements>(context, f, y, {&x...}, std::index_sequence_for<Tensors...>());
}

}  // namespace athanor::cpu
