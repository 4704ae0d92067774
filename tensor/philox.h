#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tensor/half.h"

// Random numbers as a pure function, without state. Philox4x32-10 encrypts a 128-bit counter with a 64-bit
// key in ten rounds of multiply and xor; each counter gives four independent 32-bit words. Number i of a
// stream depends only on (seed, stream, i), so any thread, rank or device can compute any part of it. Source:
// Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
//
// Everything here uses only integer arithmetic, IEEE +, *, /, sqrt and explicit fma, so the bits are the same
// on every machine.

namespace athanor {

/// Identifies a stream of random numbers.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
};

/// The purpose of a stream, so that two users of one seed never draw the same numbers. Streams that users
/// number by hand are small integers, and so collide with none of these.
enum class RandomPurpose : std::uint8_t {
  user = 0,
  dropout = 1,
  order = 2,
  augment = 3,
  check = 4,
  task = 5,
  mix = 6
};

/// The stream of a purpose at `major` (an epoch or a step, below 2^40) and `minor` (the op within it).
ATH_HD constexpr std::uint64_t random_stream(RandomPurpose purpose, std::uint64_t major,
                                             std::uint64_t minor = 0) {
  return (std::uint64_t{static_cast<std::uint8_t>(purpose)} << 56) | ((major & 0xff'ffff'ffffull) << 16) |
         (minor & 0xffffull);
}

/// The counter of Philox, or its 128 random bits.
struct PhiloxBlock {
  std::uint32_t word[4];
};

/// The bijection: ten rounds over one counter.
ATH_HD constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::uint32_t key0, std::uint32_t key1) {
  std::uint32_t a = counter.word[0], b = counter.word[1], c = counter.word[2], d = counter.word[3];
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t left = 0xD2511F53ull * a, right = 0xCD9E8D57ull * c;
    a = static_cast<std::uint32_t>(right >> 32) ^ b ^ key0;
    b = static_cast<std::uint32_t>(right);
    c = static_cast<std::uint32_t>(left >> 32) ^ d ^ key1;
    d = static_cast<std::uint32_t>(left);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{a, b, c, d}};
}

/// Words 4 * block .. 4 * block + 3 of a stream.
ATH_HD constexpr PhiloxBlock philox(RandomKey key, std::uint64_t block) {
  return philox4x32({{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                      static_cast<std::uint32_t>(key.stream), static_cast<std::uint32_t>(key.stream >> 32)}},
                    static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32));
}

/// Word `index` of a stream.
ATH_HD constexpr std::uint32_t philox_word(RandomKey key, std::uint64_t index) {
  return philox(key, index / 4).word[index % 4];
}

/// 64 bits: words 2 * index (low half) and 2 * index + 1 of a stream.
ATH_HD constexpr std::uint64_t philox_word64(RandomKey key, std::uint64_t index) {
  const PhiloxBlock block = philox(key, index / 2);
  const std::uint64_t half = index % 2 * 2;
  return block.word[half] | (std::uint64_t{block.word[half + 1]} << 32);
}

/// A multiple of 2^-24 in [0, 1).
ATH_HD constexpr float random_uniform(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

/// An integer in [0, bound), 0 < bound, by multiplication: its bias is below bound / 2^64.
ATH_HD constexpr std::uint64_t random_below(std::uint64_t word, std::uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(word) * bound) >> 64);
}

/// The threshold for dropping with probability p in [0, 1): keep an element if its word >= threshold.
constexpr std::uint32_t drop_threshold(double p) {
  const double scaled = p * 0x1p32 + 0.5;
  return scaled >= 0x1p32 ? 0xffffffffu : static_cast<std::uint32_t>(scaled);
}

namespace detail {

/// Natural logarithm of a normal x > 0, within 2 ulp: x = m 2^e with m near 1, ln m = 2 atanh((m-1)/(m+1)).
ATH_HD inline float random_log(float x) {
  const std::uint32_t raw = std::bit_cast<std::uint32_t>(x) - 0x3f3504f3u;  // of sqrt(1/2)
  const auto exponent = static_cast<float>(static_cast<std::int32_t>(raw) >> 23);
  const float f = std::bit_cast<float>((raw & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  const float s = f / (2.0f + f), z = s * s;
  float series = std::fma(z, 2.0f / 9, 2.0f / 7);
  series = std::fma(z, series, 2.0f / 5);
  series = std::fma(z, series, 2.0f / 3);
  // 2 s = f - s f, which keeps the leading term exact.
  const float small = std::fma(s, z * series - f, exponent * -1.90465421e-9f);
  return std::fma(exponent, 0.693147182f, small + f);
}

}  // namespace detail

/// Two independent values.
struct NormalPair {
  float first, second;
};

/// Two independent standard normals from two words, |n| < 6.8.
/// Source: Box and Muller 1958. The angle is reduced exactly, as an integer of 2^-32 turns.
ATH_HD inline NormalPair random_normals(std::uint32_t radius_word, std::uint32_t angle_word) {
  const float u = std::fma(static_cast<float>(radius_word), 0x1p-32f, 0x1p-33f);  // in (0, 1]
  const float radius = std::sqrt(-2.0f * detail::random_log(u));

  const std::uint32_t quadrant = (angle_word + (1u << 29)) >> 30;
  const auto rest = static_cast<std::int32_t>(angle_word - (quadrant << 30));
  const float t = static_cast<float>(rest) * (6.28318531f * 0x1p-32f), z = t * t;  // in [-pi/4, pi/4]
  float sine = std::fma(z, 1.0f / 362880, -1.0f / 5040);
  sine = std::fma(z, sine, 1.0f / 120);
  sine = std::fma(z, sine, -1.0f / 6);
  sine = std::fma(t * z, sine, t);
  float cosine = std::fma(z, -1.0f / 3628800, 1.0f / 40320);
  cosine = std::fma(z, cosine, -1.0f / 720);
  cosine = std::fma(z, cosine, 1.0f / 24);
  cosine = std::fma(z, cosine, -0.5f);
  cosine = std::fma(z, cosine, 1.0f);

  const bool swap = (quadrant & 1u) != 0;
  const float x = swap ? -sine : cosine, y = swap ? cosine : sine;
  const float turned = (quadrant & 2u) != 0 ? -radius : radius;
  return {turned * x, turned * y};
}

/// A uniformly random permutation of 0 .. n-1: Fisher-Yates from the last position down. Each draw takes the
/// next 64-bit word of the stream and is exact: words in the biased remainder of the range are rejected.
/// Source: Lemire 2019, "Fast random integer generation in an interval".
inline std::vector<std::int64_t> philox_permutation(std::int64_t n, RandomKey key) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n > 0 ? n : 0));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::uint64_t next = 0;
  PhiloxBlock block{};
  const auto draw = [&] {
    if (next % 2 == 0) block = philox(key, next / 2);
    const std::uint64_t half = next++ % 2 * 2;
    return block.word[half] | (std::uint64_t{block.word[half + 1]} << 32);
  };
  for (std::uint64_t left = order.size(); left > 1; --left) {
    std::uint64_t word = draw();
    if (word * left < left) {  // low half of the product: a word can be biased only here
      const std::uint64_t biased = (0 - left) % left;
      while (word * left < biased) word = draw();
    }
    const auto pick = static_cast<std::size_t>(random_below(word, left));
    const std::int64_t last = order[left - 1];
    order[left - 1] = order[pick];
    order[pick] = last;
  }
  return order;
}

}  // namespace athanor
