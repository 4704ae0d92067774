#pragma once

#include "tensor/tensor.h"

namespace athanor::nn::init {

/// Sets w[i] = value(i) for every i, in order; value returns double. Throws ArgumentError naming op if w is
/// not floating and dense.
template <class F> void fill(const char* op, const Tensor& w, F&& value) {
  ATH_CHECK(w.defined() && is_floating(w.dtype()) && w.is_contiguous(),
            "{}: tensor must be floating and dense", op);
  const Tensor host = w.device().is_cpu() ? w.detach() : Tensor::empty(w.shape(), {w.dtype(), kCpu});
  dispatch_floating(w.dtype(), op, [&]<class T>() {
    T* out = host.data<T>();
    const auto count = static_cast<std::uint64_t>(w.numel());
    for (std::uint64_t i = 0; i < count; ++i) out[i] = static_cast<T>(static_cast<Accumulate<T>>(value(i)));
  });
  if (!w.device().is_cpu()) w.copy_bytes_from(host);
  w.bump_version();
}

}  // namespace athanor::nn::init
