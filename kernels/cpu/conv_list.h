#pragma once

#include <bit>
#include <functional>
#include <span>
#include <string_view>
#include <type_traits>

#include "kernels/cpu/context.h"
#include "kernels/cpu/primitive.h"
#include "kernels/cpu/primitive_cache.h"
#include "kernels/detail/conv_size.h"

namespace athanor::cpu {

/// The implementations of a pass, in the order in which `automatic` asks them. The last one fits everything.
std::span<const ListEntry> conv_list(PrimitiveKey::Op pass);

/// The names of the passes, in the order of PrimitiveKey::Op.
inline constexpr std::string_view kPassNames[] = {"forward", "backward_data", "backward_weights"};
constexpr std::string_view pass_name(PrimitiveKey::Op pass) {
  return kPassNames[static_cast<int>(pass)];
}

/// find_code(). If a list of convolutions has none by that name, throws BackendError with what the key lacks
/// or, where no entry says what it needs, with the name, the pass and the dtype.
Code require_code(CpuContext& context, std::span<const ListEntry> list, const PrimitiveKey& key,
                  std::string_view name);

/// The name of the implementation that `automatic` stands for: the one measured for this key
/// (kernels/conv_choices.h), if this machine has it, else "automatic". In the scope of a MeasureConvs, the
/// first call for a key measures: it times run(code) for every implementation. Of a key, only pass, dtypes,
/// threads and sizes matter.
std::string_view chosen_conv(CpuContext& context, const PrimitiveKey& key,
                             const std::function<void(const Code&)>& run);

PrimitiveKey conv_key(const CpuContext& context, PrimitiveKey::Op pass, const ConvSize& size, DType in,
                      DType out);
/// The sizes of a convolution's key, which are ConvSize's members in their order.
inline ConvSize conv_size(const PrimitiveKey& key) {
  return std::bit_cast<ConvSize>(key.sizes);
}

/// Calls f(x, dy, dw) of a backward-weights key, but of f64: x and dy are of dtype key.in, dw is of key.out,
/// f32 or the same.
template <class F> void with_weight_gradient(const PrimitiveKey& key, const Operands& at, const F& f) {
  dispatch_floating(key.in, "conv2d", [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      const auto *const x = static_cast<const T*>(at.first), *const dy = static_cast<const T*>(at.second);
      if (key.out == DType::f32) return f(x, dy, static_cast<float*>(at.out));
      f(x, dy, static_cast<T*>(at.out));
    }
  });
}

}  // namespace athanor::cpu
