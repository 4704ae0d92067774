#pragma once

#include <bit>
#include <cstdint>

#include "tensor/half.h"

namespace athanor::cuda {

/// A quotient, and the remainder.
template <class I> struct Quotient { I whole, rest; };

/// Division by a number fixed on the host, as a multiplication and a shift: a GPU has no instruction for it.
/// Source: Granlund and Montgomery 1994, "Division by invariant integers using multiplication", theorem 4.2.
class Divider {
 public:
  Divider() = default;
  /// divisor >= 0; 0, which no index is ever divided by, is taken for 1.
  explicit Divider(std::int64_t divisor)
      : divisor_(divisor == 0 ? 1 : divisor),
        shift_(narrow() ? 31 + std::bit_width(static_cast<std::uint32_t>(divisor_) - 1) : 31),
        multiplier_(narrow() ? static_cast<std::uint32_t>(
                                   ((std::uint64_t{1} << shift_) + static_cast<std::uint64_t>(divisor_) - 1) /
                                   static_cast<std::uint64_t>(divisor_))
                             : 0) {}

  ATH_HD std::int64_t divisor() const { return divisor_; }

  /// n < 2^31.
  ATH_HD Quotient<std::uint32_t> divide(std::uint32_t n) const {
    const auto whole = static_cast<std::uint32_t>((std::uint64_t{n} * multiplier_) >> shift_);
    return {whole, n - whole * static_cast<std::uint32_t>(divisor_)};
  }
  /// Any n >= 0: as quick where n and the divisor are below 2^31.
  ATH_HD Quotient<std::int64_t> divide(std::int64_t n) const {
    if (n >= kLimit || !narrow()) return {n / divisor_, n % divisor_};
    const auto [whole, rest] = divide(static_cast<std::uint32_t>(n));
    return {whole, rest};
  }

 private:
  static constexpr std::int64_t kLimit = std::int64_t{1} << 31;
  ATH_HD bool narrow() const { return divisor_ < kLimit; }

  std::int64_t divisor_ = 1;
  std::uint32_t shift_ = 31, multiplier_ = 1u << 31;
};

/// The same by a number that is not fixed, n >= 0 and divisor > 0: in 32 bits where they fit, which is
/// several times faster than in 64.
ATH_HD inline Quotient<std::int64_t> divide(std::int64_t n, std::int64_t divisor) {
  const auto a = static_cast<std::uint64_t>(n), b = static_cast<std::uint64_t>(divisor);
  const bool narrow = ((a | b) >> 32) == 0;
  const std::uint64_t whole = narrow ? static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b) : a / b;
  return {static_cast<std::int64_t>(whole), static_cast<std::int64_t>(a - whole * b)};
}

}  // namespace athanor::cuda
