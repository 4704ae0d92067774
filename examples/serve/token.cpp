#include "examples/serve/token.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <ios>
#include <iterator>
#include <span>

#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/io/sha256.h"

namespace athanor::serve {
namespace {

constexpr std::string_view kScheme = "bearer ";
constexpr std::string_view kWhite = " \t\r\n";

}  // namespace

Token::Token(std::string_view token) {
  const bool is_token = !token.empty() && std::all_of(token.begin(), token.end(), [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) ||
                        std::string_view("-._~+/=").find(static_cast<char>(c)) != std::string_view::npos);
  });
  ATH_CHECK(is_token, "--token: must be letters, digits and -._~+/=, but {}",
            token.empty() ? "is empty" : "has others");
  digest_ = digest_of(token);
}

Token::Digest Token::digest_of(std::string_view token) {
  Sha256 hash;
  hash.add(std::as_bytes(std::span(token.data(), token.size())));
  return hash.digest();
}

bool Token::allows(std::string_view authorization) const {
  if (!digest_) return true;
  const bool has_scheme = authorization.size() > kScheme.size() &&
                          std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                                     [](char a, unsigned char b) { return a == std::tolower(b); });
  if (!has_scheme) return false;
  const Digest given = digest_of(authorization.substr(kScheme.size()));
  std::byte different{0};
  for (std::size_t i = 0; i < given.size(); ++i) different |= given[i] ^ (*digest_)[i];
  return different == std::byte{0};
}

std::string read_token(const std::string& file) {
  std::string text;
  try {
    std::ifstream in;
    in.exceptions(std::ios::badbit | std::ios::failbit);
    in.open(file, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), {});
  } catch (const std::ios_base::failure&) {  // of a folder, when it is read
    detail::fail<IoError>("--token-file: {} cannot be read", printable(file));
  }
  text.erase(0, std::min(text.find_first_not_of(kWhite), text.size()));
  text.resize(text.find_last_not_of(kWhite) + 1);
  if (text.empty())
    detail::fail<IoError>("--token-file: {} must hold a token, but is empty", printable(file));
  return text;
}

}  // namespace athanor::serve
