#include <array>
#include <cstring>

#include "kernels/cpu/int8_tiles.h"
#include "kernels/int8_ops.h"

// For any CPU: what int8_vector.h has, as loops over 16 channels, which the compiler vectorises.

#define ATH_ISA plain
#define ATH_TARGET

namespace athanor::cpu::int8_tiles::plain {
namespace {

constexpr int kFloats = 16, kRounded = 1, kMostBlocks = 1, kMostPixels = 2, kBytes = 2;

template <class T> struct Lanes {
  T lane[kFloats];

  /// f(i) of each lane i.
  template <class F> static Lanes of(const F& f) {
    Lanes lanes;
    for (int i = 0; i < kFloats; ++i) lanes.lane[i] = f(i);
    return lanes;
  }
  static Lanes from(const T* values) {
    return of([&](int i) { return values[i]; });
  }
  friend Lanes operator+(const Lanes& a, const Lanes& b) {
    return of([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  friend Lanes operator*(const Lanes& a, const Lanes& b) {
    return of([&](int i) { return a.lane[i] * b.lane[i]; });
  }
};
using Ints = Lanes<std::int32_t>;
using Floats = Lanes<float>;
using Bytes = Lanes<std::uint8_t>;

Floats load(const float* from) {
  return Floats::from(from);
}
Floats all(float value) {
  return Floats::of([&](int) { return value; });
}
void store(float* to, const Floats& value) {
  std::memcpy(to, value.lane, sizeof value.lane);
}
Ints load_ints(const std::int32_t* from) {
  return Ints::from(from);
}
Ints all_ints(std::int32_t value) {
  return Ints::of([&](int) { return value; });
}
Ints sum_of(const Ints& a, const Ints& b) {
  return a + b;
}
Floats as_floats(const Ints& value) {
  return Floats::of([&](int i) { return static_cast<float>(value.lane[i]); });
}
Bytes load_bytes(const std::uint8_t* from) {
  return Bytes::from(from);
}
Ints widened(const Bytes& bytes) {
  return Ints::of([&](int i) { return std::int32_t{bytes.lane[i]}; });
}
struct VectorRounding {
  kernels::RoundToU8 round;

  explicit VectorRounding(const kernels::Rounding& rounding) : round(rounding) {}
  void operator()(const Floats (&v)[kRounded], std::uint8_t* to) const {
    for (int i = 0; i < kFloats; ++i) to[i] = round(v[0].lane[i]);
  }
};

/// A word of each channel: two values.
struct Words {
  std::int16_t value[kFloats][2];
};
Words load_ints(const std::byte* from) {
  Words words;
  std::memcpy(&words, from, sizeof words);
  return words;
}
/// `x` has the bits of two values in each lane.
Ints with_products(const Ints& sum, const Ints& x, const Words& w) {
  const auto low = static_cast<std::int16_t>(x.lane[0] & 0xffff),
             high = static_cast<std::int16_t>(x.lane[0] >> 16);
  return Ints::of([&](int i) {
    return sum.lane[i] + std::int32_t{low} * w.value[i][0] + std::int32_t{high} * w.value[i][1];
  });
}

}  // namespace
}  // namespace athanor::cpu::int8_tiles::plain

#include "kernels/cpu/int8_tiles_code.h"
