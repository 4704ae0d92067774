#include "tensor/io/sha256.h"

#include <algorithm>
#include <bit>

namespace athanor {
namespace {

// The first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kRound{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const std::byte* at) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::uint32_t>(at[i]);
  return value;
}

}  // namespace

void Sha256::take(const std::byte* block) {
  std::array<std::uint32_t, 64> w;
  for (std::size_t t = 0; t < 16; ++t) w[t] = big_endian(block + 4 * t);
  for (std::size_t t = 16; t < 64; ++t) {
    const std::uint32_t a = w[t - 15], b = w[t - 2];
    const std::uint32_t low = std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3;
    const std::uint32_t high = std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10;
    w[t] = w[t - 16] + low + w[t - 7] + high;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t one =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRound[t] + w[t];
    const std::uint32_t two =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one;
    d = c, c = b, b = a, a = one + two;
  }
  const std::array<std::uint32_t, 8> more{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state_[i] += more[i];
}

void Sha256::add(std::span<const std::byte> bytes) {
  const std::size_t held = bytes_ % 64;
  bytes_ += bytes.size();
  const std::size_t first = std::min(bytes.size(), 64 - held);
  std::copy_n(bytes.begin(), first, rest_.begin() + static_cast<std::ptrdiff_t>(held));
  if (held + first < 64) return;
  take(rest_.data());
  bytes = bytes.subspan(first);
  for (; bytes.size() >= 64; bytes = bytes.subspan(64)) take(bytes.data());
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

std::array<std::byte, 32> Sha256::digest() {
  std::array<std::byte, 72> end{std::byte{0x80}};
  const std::size_t zeros = (55 - bytes_ % 64 + 64) % 64;  // until 8 bytes are left of a block
  for (std::size_t i = 0; i < 8; ++i) end[1 + zeros + i] = static_cast<std::byte>(bytes_ * 8 >> (56 - 8 * i));
  add(std::span(end).first(1 + zeros + 8));
  std::array<std::byte, 32> result;
  for (std::size_t i = 0; i < 32; ++i)
    result[i] = static_cast<std::byte>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return result;
}

std::array<std::byte, 32> hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  std::array<std::byte, 64> padded{};
  if (key.size() > padded.size()) {
    Sha256 hash;
    hash.add(key);
    std::ranges::copy(hash.digest(), padded.begin());
  } else {
    std::ranges::copy(key, padded.begin());
  }
  const auto hash_of = [&](std::byte pad, std::span<const std::byte> text) {
    std::array<std::byte, 64> block;
    for (std::size_t i = 0; i < block.size(); ++i) block[i] = padded[i] ^ pad;
    Sha256 hash;
    hash.add(block);
    hash.add(text);
    return hash.digest();
  };
  return hash_of(std::byte{0x5c}, hash_of(std::byte{0x36}, message));
}

}  // namespace athanor
