#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace athanor::serve {

/// A bearer token that requests must show. Of the token only a digest is kept, and digests are compared as a
/// whole, so the time of an answer says nothing of the token. Source: RFC 6750, section 2.1.
class Token {
 public:
  /// Every request is allowed.
  Token() = default;
  /// Throws ArgumentError if it is empty, or has other characters than a token may have.
  explicit Token(std::string_view token);

  /// Whether a header "Authorization: Bearer TOKEN" with that value has it.
  bool allows(std::string_view authorization) const;

 private:
  using Digest = std::array<std::byte, 32>;
  static Digest digest_of(std::string_view token);

  std::optional<Digest> digest_;
};

/// The token in a file: all of it but white space around it. Throws IoError naming the file.
std::string read_token(const std::string& file);

}  // namespace athanor::serve
