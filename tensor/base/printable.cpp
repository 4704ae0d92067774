#include "tensor/base/printable.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include <fmt/format.h>

namespace athanor {
namespace {

/// Length of the UTF-8 character at the start of `text`; 0 if it is invalid or a control character.
std::size_t visible_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  if (first == 0xc2 && second < 0xa0) return 0;  // controls of Latin-1
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool no_character = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return overlong || no_character ? 0 : length;
}

/// Visible characters, but those of `special`, as they are; each other byte as escape(text, byte) appends it.
template <class Escape>
std::string escaped(std::string_view bytes, std::string_view special, const Escape& escape) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const std::size_t visible = special.find(bytes[0]) != special.npos ? 0 : visible_bytes(bytes);
    if (visible > 0) {
      text.append(bytes.substr(0, visible));
    } else {
      escape(text, static_cast<unsigned char>(bytes[0]));
    }
    bytes.remove_prefix(std::max<std::size_t>(visible, 1));
  }
  return text;
}

}  // namespace

bool is_name(std::string_view text, std::string_view others) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || others.find(c) != others.npos;
  });
}

std::string printable(std::string_view text) {
  return escaped(text, "", [](std::string& shown, unsigned char byte) {
    if (byte == '\n' || byte == '\t') {
      shown += byte == '\n' ? "\\n" : "\\t";
    } else {
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", byte);
    }
  });
}

std::string percent_encoded(std::string_view bytes) {
  return escaped(bytes, "%", [](std::string& text, unsigned char byte) {
    fmt::format_to(std::back_inserter(text), "%{:02x}", byte);
  });
}

std::string percent_decoded(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      bytes.push_back(static_cast<char>(byte));
      i += 2;
    } else {
      bytes.push_back(text[i]);
    }
  }
  return bytes;
}

}  // namespace athanor
