#pragma once

#include <cstdint>

namespace athanor {

/// Activations that other kernels can apply before they write.
enum class Activation : std::uint8_t { none, relu, gelu, silu };

}  // namespace athanor
