#pragma once

#include <cstdint>

#include "kernels/elementwise_ops.h"

namespace athanor {

/// Activations that other ops can apply before they write.
enum class Activation : std::uint8_t {
  none,
#define ATH_NAME(Op, name) name,
  ATH_ACTIVATIONS(ATH_NAME)
#undef ATH_NAME
};

}  // namespace athanor
