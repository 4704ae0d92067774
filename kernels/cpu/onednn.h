#pragma once

#include <cstdint>
#include <string>

#include "kernels/cpu/primitive.h"

// The only interface to oneDNN: onednn.cpp supports its 2.x and 3.x APIs; onednn_absent.cpp replaces it in
// builds without oneDNN.

namespace athanor::cpu {

/// The activations that its code for packed weights computes. Not SiLU: activate_packed() is a pass over the
/// result, and faster than 2.6's code for it.
constexpr Activations kOneDnnActivations = set_of(Activation::relu) | set_of(Activation::gelu) |
                                           set_of(Activation::relu6) | set_of(Activation::hardswish);

/// oneDNN's code for a key; null if only its reference code supports it. Throws BackendError.
MadePrimitive make_onednn(const PrimitiveKey& key);
/// y [m, n] i32 = a [m, k] u8 times the transpose of b [n, k] i8; dense.
struct Int8Product {
  const std::uint8_t* a;
  const std::int8_t* b;
  std::int32_t* y;
  std::int64_t m, n, k;
};
/// oneDNN's, exact: only if has_exact_int8_onednn(). Throws BackendError.
void multiply_int8_onednn(const CpuContext& context, int threads, const Int8Product& product);
/// Whether this build has oneDNN, and that has products of bytes on this CPU (VNNI or AMX): without, its sums
/// saturate.
bool has_exact_int8_onednn();
/// Whether this build has oneDNN.
bool has_onednn();
/// "2.6.3"; empty in a build without it.
std::string onednn_version();

}  // namespace athanor::cpu
