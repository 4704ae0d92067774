#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/base/printable.h"

// Numbers in files, and overflow-safe arithmetic on numbers from untrusted files.

namespace athanor::detail {

/// The number in the first sizeof(T) bytes of `bytes`; the caller has checked the length.
template <class T> T load(std::span<const std::byte> bytes, std::endian order) {
  std::array<std::byte, sizeof(T)> raw;
  std::copy_n(bytes.begin(), sizeof(T), raw.begin());
  if (order != std::endian::native) std::reverse(raw.begin(), raw.end());
  return std::bit_cast<T>(raw);
}
template <class T> T load_le(std::span<const std::byte> bytes) {
  return load<T>(bytes, std::endian::little);
}
template <class T> T load_be(std::span<const std::byte> bytes) {
  return load<T>(bytes, std::endian::big);
}

/// The number as bytes, for a file or a buffer.
template <class T> std::array<std::byte, sizeof(T)> stored(T value, std::endian order) {
  auto raw = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  if (order != std::endian::native) std::reverse(raw.begin(), raw.end());
  return raw;
}
template <class T> auto stored_le(T value) {
  return stored(value, std::endian::little);
}
template <class T> auto stored_be(T value) {
  return stored(value, std::endian::big);
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A buffer of bytes and numbers in file representation.
struct ByteWriter {
  std::vector<std::byte> bytes;

  ByteWriter& add(std::span<const std::byte> more) {
    // GCC 14 gives a false warning about resize() here, GCC 12 about insert().
    std::copy(more.begin(), more.end(), std::back_inserter(bytes));
    return *this;
  }
  ByteWriter& add(std::string_view text) { return add(bytes_of(text)); }
  template <class T> ByteWriter& le(T value) { return add(stored_le(value)); }
  template <class T> ByteWriter& be(T value) { return add(stored_be(value)); }
};

/// The product of numbers >= 0; nullopt on overflow.
inline std::optional<std::int64_t> product(std::initializer_list<std::int64_t> factors) {
  std::int64_t result = 1;
  for (const std::int64_t factor : factors) {
    if (factor < 0 || __builtin_mul_overflow(result, factor, &result)) return std::nullopt;
  }
  return result;
}

/// Converts A to Z to lower case.
inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

/// Without blanks around it.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text = text.substr(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}
/// A text that is a whole number, but for blanks around it.
inline std::optional<std::int64_t> whole_number(std::string_view text) {
  text = trimmed(text);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Text from a file for a one-line message, cut at 80 bytes.
inline std::string printable(std::string_view text) {
  return athanor::printable(text.substr(0, 80)) + (text.size() > 80 ? "..." : "");
}

/// A JSON value for a one-line message; for a list or object, which may have any depth, its type.
template <class Json> std::string shown(const Json& value) {
  if (value.is_structured()) return value.type_name();
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace athanor::detail
