#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/context.h"

namespace athanor::kernels {

/// The finaliser of SplitMix64: a bijection in which every input bit flips every output bit with probability
/// close to 1/2. Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"; the
/// constants are Stafford's variant 13.
ATH_HD constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// FNV-1a hash of a name, 64 bits. Must not change: weight initialisation and job identity depend on it.
/// Source: Fowler, Noll, Vo, http://www.isthe.com/chongo/tech/comp/fnv/.
constexpr std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

/// A hash of several numbers, in order.
class HashOf {
 public:
  template <class... T> constexpr void add(const T&... values) {
    ((value_ = mix64(value_ + 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(values))), ...);
  }
  constexpr std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

/// The contribution of a value with bits `bits` at `index` to a hash. Index and value are mixed in turn, so
/// equal values at other positions, and swapped ones, contribute differently.
ATH_HD constexpr std::uint64_t hash_element(std::uint64_t index, std::uint32_t bits) {
  return mix64(mix64((index + 1) * 0x9e3779b97f4a7c15ull) ^ bits);
}

/// The sum modulo 2^64 of hash_element(first_index + i, bits of x[i]); x dense f32. Order does not matter:
/// threads, shards and ranks hash their parts and add. Waits for the device. Reads 1 element per element.
ATH_KERNEL(std::uint64_t, hash_elements, const Tensor& x, std::uint64_t first_index);

}  // namespace athanor::kernels
