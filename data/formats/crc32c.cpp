#include "data/formats/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

// A CRC is the remainder of the message, read as a polynomial over GF(2), after division by a fixed one. So
// it is linear: the CRC of "a then b" is that of a, multiplied by x^(8 |b|) mod P, plus that of b started
// from zero.
//
// The CPU's instruction takes 3 cycles for 8 bytes, but can start one every cycle. Hence three CRCs at a
// time, of three neighbouring blocks, brought together by two such multiplications. For a block of fixed
// length a multiplication is four look-ups, one for each byte of the CRC.

namespace athanor::detail {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // reflected: bit 31 is x^0

constexpr std::uint32_t times_x(std::uint32_t a) {
  return (a & 1) != 0 ? (a >> 1) ^ kPolynomial : a >> 1;
}

/// a * b mod P.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = times_x(b);
  }
  return product;
}

/// Four tables by byte: the CRC that a byte of another CRC becomes. Slice k takes bits 8 k and up.
using Tables = std::array<std::array<std::uint32_t, 256>, 4>;

/// What a CRC becomes when `bytes` zero bytes follow.
constexpr Tables shift_by(std::size_t bytes) {
  std::uint32_t power = 1u << 31;  // x^0
  for (std::uint32_t square = 1u << 23; bytes != 0; bytes >>= 1, square = multiply(square, square)) {
    if ((bytes & 1) != 0) power = multiply(power, square);
  }
  Tables tables{};
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::uint32_t bit = 0; bit < 8; ++bit) {
      const std::uint32_t shifted = multiply(power, 1u << (8 * k + bit));
      for (std::uint32_t byte = 0; byte < 256; ++byte) {
        if ((byte >> bit & 1) != 0) tables[k][byte] ^= shifted;
      }
    }
  }
  return tables;
}

inline std::uint32_t look_up(const Tables& tables, std::uint32_t crc) {
  return tables[0][crc & 0xff] ^ tables[1][crc >> 8 & 0xff] ^ tables[2][crc >> 16 & 0xff] ^
         tables[3][crc >> 24];
}

template <std::size_t kBytes> constexpr Tables kShiftBy = shift_by(kBytes);

inline std::uint64_t load(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

}  // namespace

// Eight bytes at a time: a table says what each of them becomes when those after it follow as zeros.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t seed) {
  constexpr const Tables &near = kShiftBy<4>, &far = kShiftBy<8>;
  constexpr const auto& one = kShiftBy<1>[0];
  std::uint32_t crc = ~seed;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  if constexpr (std::endian::native == std::endian::little) {
    for (; left >= 8; left -= 8, at += 8) {
      const std::uint64_t word = load(at) ^ crc;
      crc = look_up(far, static_cast<std::uint32_t>(word)) ^
            look_up(near, static_cast<std::uint32_t>(word >> 32));
    }
  }
  for (; left > 0; --left, ++at) crc = one[(crc ^ std::to_integer<std::uint32_t>(*at)) & 0xff] ^ crc >> 8;
  return ~crc;
}

#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__GNUC__)
namespace {

#if defined(__x86_64__)
#define ATH_CRC_TARGET [[gnu::target("sse4.2")]]
ATH_CRC_TARGET inline std::uint64_t step(std::uint64_t crc, std::uint64_t word) {
  return _mm_crc32_u64(crc, word);
}
ATH_CRC_TARGET inline std::uint64_t step(std::uint64_t crc, std::byte byte) {
  return _mm_crc32_u8(static_cast<std::uint32_t>(crc), std::to_integer<std::uint8_t>(byte));
}
#else
#define ATH_CRC_TARGET [[gnu::target("+crc")]]
ATH_CRC_TARGET inline std::uint64_t step(std::uint64_t crc, std::uint64_t word) {
  return __crc32cd(static_cast<std::uint32_t>(crc), word);
}
ATH_CRC_TARGET inline std::uint64_t step(std::uint64_t crc, std::byte byte) {
  return __crc32cb(static_cast<std::uint32_t>(crc), std::to_integer<std::uint8_t>(byte));
}
#endif

/// Takes as many times 3 * kBlock bytes as there are.
template <std::size_t kBlock>
ATH_CRC_TARGET inline std::uint64_t three_at_a_time(std::uint64_t crc, const std::byte*& at,
                                                    std::size_t& left) {
  for (; left >= 3 * kBlock; left -= 3 * kBlock, at += 3 * kBlock) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t i = 0; i < kBlock; i += 8) {
      crc = step(crc, load(at + i));
      second = step(second, load(at + kBlock + i));
      third = step(third, load(at + 2 * kBlock + i));
    }
    crc = look_up(kShiftBy<kBlock>, static_cast<std::uint32_t>(crc)) ^ second;
    crc = look_up(kShiftBy<kBlock>, static_cast<std::uint32_t>(crc)) ^ third;
  }
  return crc;
}

}  // namespace

ATH_CRC_TARGET std::uint32_t crc32c_by_instruction(std::span<const std::byte> bytes, std::uint32_t seed) {
  std::uint64_t crc = ~seed;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  // Blocks that the usual samples fill: pages, an image of 32x32x3, the rest.
  crc = three_at_a_time<8192>(crc, at, left);
  crc = three_at_a_time<1024>(crc, at, left);
  crc = three_at_a_time<128>(crc, at, left);
  for (; left >= 8; left -= 8, at += 8) crc = step(crc, load(at));
  for (; left > 0; --left, ++at) crc = step(crc, *at);
  return ~static_cast<std::uint32_t>(crc);
}
#undef ATH_CRC_TARGET

bool has_crc32c_instruction() {
#if defined(__x86_64__)
  static const bool found = __builtin_cpu_supports("sse4.2");
#else
  static const bool found = (getauxval(AT_HWCAP) & 1u << 7) != 0;  // HWCAP_CRC32
#endif
  return found;
}

#else

std::uint32_t crc32c_by_instruction(std::span<const std::byte> bytes, std::uint32_t seed) {
  return crc32c_by_table(bytes, seed);
}
bool has_crc32c_instruction() {
  return false;
}

#endif

}  // namespace athanor::detail

namespace athanor {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
  return detail::has_crc32c_instruction() ? detail::crc32c_by_instruction(bytes, seed)
                                          : detail::crc32c_by_table(bytes, seed);
}

}  // namespace athanor
