#pragma once

#include <cmath>
#include <cstdint>

#include "tensor.h"

namespace engine {

/// Random numbers that are a function of (seed, place): any one of them can be drawn without those before it,
/// by any thread.
inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t place) {
  std::uint64_t z = seed * 0x9e3779b97f4a7c15ull + place + 1;
  for (int round = 0; round < 3; ++round) {
    z *= 0xd6e8feb86659fd93ull;
    z ^= z >> 32;
  }
  return z;
}

/// Uniform in [0, 1), with 24 bits.
inline float random_uniform(std::uint64_t seed, std::uint64_t place) {
  return static_cast<float>(random_bits(seed, place) >> 40) * 0x1p-24f;
}

/// Normal with mean 0 and deviation 1, by Box and Muller.
inline float random_normal(std::uint64_t seed, std::uint64_t place) {
  const float radius = std::sqrt(-2.0f * std::log(1.0f - random_uniform(seed, 2 * place)));
  return radius * std::cos(6.28318530718f * random_uniform(seed, 2 * place + 1));
}

/// Normal numbers times `deviation`, in row-major order.
inline Tensor random_tensor(const Shape& shape, std::uint64_t seed, float deviation = 1.0f) {
  Tensor x(shape);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.data()[i] = deviation * random_normal(seed, static_cast<std::uint64_t>(i));
  return x;
}

}  // namespace engine
