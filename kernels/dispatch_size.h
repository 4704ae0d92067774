#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace athanor::kernels {

/// Calls f with the unsigned integer type of an element's size: copying bits needs no other type.
template <class F> void dispatch_size(DType dtype, const F& f) {
  switch (size_of(dtype)) {
    case 1: return f.template operator()<std::uint8_t>();
    case 2: return f.template operator()<std::uint16_t>();
    case 4: return f.template operator()<std::uint32_t>();
    default: return f.template operator()<std::uint64_t>();
  }
}

}  // namespace athanor::kernels
