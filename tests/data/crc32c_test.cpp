#include "data/formats/crc32c.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace athanor::crc32c_test {

using Bytes = std::vector<std::byte>;

/// One bit at a time, as the definition has it.
std::uint32_t reference(std::span<const std::byte> bytes, std::uint32_t seed) {
  std::uint32_t crc = ~seed;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

Bytes noise(std::size_t count) {
  Bytes bytes(count);
  std::uint64_t state = 12345;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

TEST(Crc32c, GivesTheValuesOfRfc3720) {
  Bytes up(32), down(32);
  for (std::size_t i = 0; i < 32; ++i) {
    up[i] = static_cast<std::byte>(i);
    down[i] = static_cast<std::byte>(31 - i);
  }
  Bytes read_command(48);  // "An iSCSI - SCSI Read (10) Command PDU"
  for (const auto& [at, value] : std::initializer_list<std::pair<std::size_t, int>>{
           {0, 0x01}, {1, 0xc0}, {16, 0x14}, {22, 0x04}, {27, 0x14}, {31, 0x18}, {32, 0x28}, {40, 0x02}}) {
    read_command[at] = static_cast<std::byte>(value);
  }
  EXPECT_EQ(crc32c(Bytes(32, std::byte{0x00})), 0x8a9136aau);
  EXPECT_EQ(crc32c(Bytes(32, std::byte{0xff})), 0x62a8ab43u);
  EXPECT_EQ(crc32c(up), 0x46dd794eu);
  EXPECT_EQ(crc32c(down), 0x113fdb5cu);
  EXPECT_EQ(crc32c(read_command), 0xd9963a56u);
  EXPECT_EQ(crc32c(std::as_bytes(std::span(std::string_view("123456789")))), 0xe3069283u);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, EqualsTheBitwiseReferenceAtEveryLengthAndAlignment) {
  const Bytes bytes = noise(1024 + 16);
  for (std::size_t start = 0; start < 16; ++start) {
    for (std::size_t length = 0; length <= 1024; ++length) {
      const auto piece = std::span(bytes).subspan(start, length);
      ASSERT_EQ(crc32c(piece, 7), reference(piece, 7)) << length << " bytes from " << start;
    }
  }
}

TEST(Crc32c, LongInputsToo) {
  const Bytes bytes = noise(100'000);
  for (const std::size_t length :
       {3071u, 3072u, 3073u, 6143u, 6144u, 24575u, 24576u, 24577u, 27648u, 28032u, 49152u, 52609u, 99'999u}) {
    const auto piece = std::span(bytes).subspan(1, length);
    EXPECT_EQ(crc32c(piece), reference(piece, 0)) << length;
  }
}

TEST(Crc32c, ContinuesFromAPreviousValue) {
  const Bytes bytes = noise(5000);
  const auto all = std::span(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); cut += 7) {
    ASSERT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), crc32c(all));
  }
}

TEST(Crc32c, EverySingleFlippedBitIsFound) {
  Bytes bytes = noise(3072);
  const std::uint32_t whole = crc32c(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
    ASSERT_NE(crc32c(bytes), whole) << bit;
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
  }
}

}  // namespace athanor::crc32c_test
