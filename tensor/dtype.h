#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "tensor/base/error.h"
#include "tensor/half.h"

namespace athanor {

/// Element types of a tensor.
enum class DType : std::uint8_t { f64, f32, f16, bf16, i64, i32, u8, boolean, i8 };

/// All of them, in the order of DType.
inline constexpr DType kDTypes[] = {DType::f64, DType::f32, DType::f16,     DType::bf16, DType::i64,
                                    DType::i32, DType::u8,  DType::boolean, DType::i8};

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::u8:
    case DType::i8:
    case DType::boolean: return 1;
  }
  return 0;
}

/// "f32", "bf16", "bool", ...
constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return "f64";
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::i64: return "i64";
    case DType::i32: return "i32";
    case DType::u8: return "u8";
    case DType::boolean: return "bool";
    case DType::i8: return "i8";
  }
  return "?";
}

/// The dtype of that name, or nullopt.
constexpr std::optional<DType> dtype_named(std::string_view name) {
  for (DType dtype : kDTypes) {
    if (name_of(dtype) == name) return dtype;
  }
  return std::nullopt;
}

/// f64, f32, f16 or bf16.
constexpr bool is_floating(DType dtype) {
  return dtype <= DType::bf16;
}
/// f16 or bf16.
constexpr bool is_half(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}

/// Maps an element's storage type to its dtype, and back.
template <class T> struct DTypeOf;
template <> struct DTypeOf<double> { static constexpr DType value = DType::f64; };
template <> struct DTypeOf<float> { static constexpr DType value = DType::f32; };
template <> struct DTypeOf<Half> { static constexpr DType value = DType::f16; };
template <> struct DTypeOf<BFloat16> { static constexpr DType value = DType::bf16; };
template <> struct DTypeOf<std::int64_t> { static constexpr DType value = DType::i64; };
template <> struct DTypeOf<std::int32_t> { static constexpr DType value = DType::i32; };
template <> struct DTypeOf<std::uint8_t> { static constexpr DType value = DType::u8; };
template <> struct DTypeOf<bool> { static constexpr DType value = DType::boolean; };
template <> struct DTypeOf<std::int8_t> { static constexpr DType value = DType::i8; };

/// The dtype of a storage type.
template <class T> inline constexpr DType dtype_of = DTypeOf<T>::value;

/// The type for arithmetic on T: double for f64, float for every other floating type.
template <class T> using Accumulate = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Calls f.template operator()<T>() with the storage type of a floating dtype.
template <class F> decltype(auto) dispatch_floating(DType dtype, std::string_view op, F&& f) {
  switch (dtype) {
    case DType::f64: return f.template operator()<double>();
    case DType::f32: return f.template operator()<float>();
    case DType::f16: return f.template operator()<Half>();
    case DType::bf16: return f.template operator()<BFloat16>();
    default: detail::fail<>("{}: dtype must be f64, f32, f16 or bf16, but got {}", op, name_of(dtype));
  }
}

/// Calls f.template operator()<T>() with the storage type of any dtype.
template <class F> decltype(auto) dispatch_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64: return f.template operator()<double>();
    case DType::f32: return f.template operator()<float>();
    case DType::f16: return f.template operator()<Half>();
    case DType::bf16: return f.template operator()<BFloat16>();
    case DType::i64: return f.template operator()<std::int64_t>();
    case DType::i32: return f.template operator()<std::int32_t>();
    case DType::u8: return f.template operator()<std::uint8_t>();
    case DType::boolean: return f.template operator()<bool>();
    case DType::i8: return f.template operator()<std::int8_t>();
  }
  detail::fail<>("dispatch: unknown dtype {}", static_cast<int>(dtype));
}

}  // namespace athanor

template <> struct fmt::formatter<athanor::DType> : fmt::formatter<std::string_view> {
  auto format(athanor::DType dtype, format_context& context) const {
    return fmt::formatter<std::string_view>::format(athanor::name_of(dtype), context);
  }
};
