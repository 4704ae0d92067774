#pragma once

#include <cstddef>

namespace athanor::nn::quantized {

/// A place in a list of a Graph, as standard containers take it.
inline std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

}  // namespace athanor::nn::quantized
