#include "tensor/io/sha256.h"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace athanor::sha256_test {

std::string digest(const std::string& text, std::size_t piece = 1000) {
  Sha256 hash;
  const auto bytes = std::as_bytes(std::span(text));
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    hash.add(bytes.subspan(at, std::min(piece, bytes.size() - at)));
  }
  std::string hex;
  for (const std::byte byte : hash.digest()) hex += fmt::format("{:02x}", std::to_integer<int>(byte));
  return hex;
}

TEST(Sha256, GivesTheValuesOfFips180) {
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnThePieces) {
  for (std::size_t length = 0; length < 200; ++length) {
    const std::string text(length, 'x');
    for (const std::size_t piece : {1u, 3u, 63u, 64u, 65u})
      ASSERT_EQ(digest(text, piece), digest(text)) << length;
  }
}

std::string hmac(const std::string& key, const std::string& message) {
  std::string hex;
  for (const std::byte byte : hmac_sha256(std::as_bytes(std::span(key)), std::as_bytes(std::span(message))))
    hex += fmt::format("{:02x}", std::to_integer<int>(byte));
  return hex;
}

TEST(HmacSha256, GivesTheValuesOfRfc4231) {
  EXPECT_EQ(hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

}  // namespace athanor::sha256_test
