#include "data/formats/crc32c.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace athanor {
namespace {

using Bytes = std::vector<std::byte>;
using Way = std::uint32_t (*)(std::span<const std::byte>, std::uint32_t);

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

std::vector<Way> ways() {
  std::vector<Way> all{crc32c, detail::crc32c_by_table};
  if (detail::has_crc32c_instruction()) all.push_back(detail::crc32c_by_instruction);
  return all;
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
  for (const Way way : ways()) {
    EXPECT_EQ(way(Bytes(32, std::byte{0x00}), 0), 0x8a9136aau);
    EXPECT_EQ(way(Bytes(32, std::byte{0xff}), 0), 0x62a8ab43u);
    EXPECT_EQ(way(up, 0), 0x46dd794eu);
    EXPECT_EQ(way(down, 0), 0x113fdb5cu);
    EXPECT_EQ(way(read_command, 0), 0xd9963a56u);
    EXPECT_EQ(way(std::as_bytes(std::span(std::string_view("123456789"))), 0), 0xe3069283u);
    EXPECT_EQ(way({}, 0), 0u);
  }
}

TEST(Crc32c, EveryWayEqualsTheBitwiseReferenceAtEveryLengthAndAlignment) {
  const Bytes bytes = noise(1024 + 16);
  for (std::size_t start = 0; start < 16; ++start) {
    for (std::size_t length = 0; length <= 1024; ++length) {
      const auto piece = std::span(bytes).subspan(start, length);
      const std::uint32_t expected = reference(piece, 7);
      for (const Way way : ways()) ASSERT_EQ(way(piece, 7), expected) << length << " bytes from " << start;
    }
  }
}

TEST(Crc32c, LongInputsToo) {
  // Around the lengths at which the blocks taken three at a time begin and end.
  const Bytes bytes = noise(100'000);
  for (const std::size_t length :
       {3071u, 3072u, 3073u, 6143u, 6144u, 24575u, 24576u, 24577u, 27648u, 28032u, 49152u, 52609u, 99'999u}) {
    const auto piece = std::span(bytes).subspan(1, length);
    const std::uint32_t expected = reference(piece, 0);
    for (const Way way : ways()) EXPECT_EQ(way(piece, 0), expected) << length;
  }
}

TEST(Crc32c, GoesOnFromWhatCameBefore) {
  const Bytes bytes = noise(5000);
  const auto all = std::span(bytes);
  for (const Way way : ways()) {
    for (std::size_t cut = 0; cut <= bytes.size(); cut += 7) {
      ASSERT_EQ(way(all.subspan(cut), way(all.first(cut), 0)), crc32c(all));
    }
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

}  // namespace
}  // namespace athanor
