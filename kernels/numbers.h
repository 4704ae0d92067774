#pragma once

#include <cstdint>
#include <type_traits>

#include "tensor/dtype.h"

namespace athanor::kernels {

/// The type for arithmetic on elements of T: double, float, or the integer type itself.
template <class T> using ComputeType = std::conditional_t<std::is_integral_v<T>, T, Accumulate<T>>;

/// Calls f.operator()<T>() with the storage type of any dtype but bool.
template <class F> decltype(auto) dispatch_number(DType dtype, const char* op, const F& f) {
  switch (dtype) {
    case DType::i64: return f.template operator()<std::int64_t>();
    case DType::i32: return f.template operator()<std::int32_t>();
    case DType::u8: return f.template operator()<std::uint8_t>();
    case DType::i8: return f.template operator()<std::int8_t>();
    case DType::boolean: athanor::detail::fail<>("{}: dtype must be numeric, but got bool", op);
    default: return dispatch_floating(dtype, op, f);
  }
}

}  // namespace athanor::kernels
