#pragma once

#include <bit>
#include <cstdint>

#include "tensor/half.h"

namespace athanor::cuda {

/// Division by a number fixed on the host, as a multiplication and a shift: a GPU has no instruction for it.
/// Numerators are below 2^31.
/// Source: Granlund and Montgomery 1994, "Division by invariant integers using multiplication", theorem 4.2.
class Divider {
 public:
  Divider() = default;
  /// divisor in [1, 2^31]; 0, which no index is ever divided by, is taken for 1.
  explicit Divider(std::int64_t divisor)
      : divisor_(divisor == 0 ? 1 : static_cast<std::uint32_t>(divisor)),
        shift_(31 + std::bit_width(divisor_ - 1)),
        multiplier_(static_cast<std::uint32_t>(((std::uint64_t{1} << shift_) + divisor_ - 1) / divisor_)) {}

  ATH_HD std::uint32_t divide(std::uint32_t n) const {
    return static_cast<std::uint32_t>((std::uint64_t{n} * multiplier_) >> shift_);
  }
  /// The remainder, given the quotient.
  ATH_HD std::uint32_t remainder(std::uint32_t n, std::uint32_t quotient) const {
    return n - quotient * divisor_;
  }

 private:
  std::uint32_t divisor_ = 1, shift_ = 31, multiplier_ = 1u << 31;
};

/// The same for any numerator from 0 on: those of 31 bits and more are divided.
struct WideDivider {
  std::int64_t divisor = 1;
  Divider narrow;

  WideDivider() = default;
  explicit WideDivider(std::int64_t d) : divisor(d), narrow(d < kLimit ? d : 1) {}

  struct Result {
    std::int64_t quotient, remainder;
  };
  ATH_HD Result divide(std::int64_t n) const {
    if (n >= kLimit || divisor >= kLimit) return {n / divisor, n % divisor};
    const auto low = static_cast<std::uint32_t>(n);
    const std::uint32_t quotient = narrow.divide(low);
    return {quotient, narrow.remainder(low, quotient)};
  }

 private:
  static constexpr std::int64_t kLimit = std::int64_t{1} << 31;
};

}  // namespace athanor::cuda
