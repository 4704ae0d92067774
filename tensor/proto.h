#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace athanor {

/// A message in protobuf's wire format, under construction. A field is its number and type in a varint, then
/// a varint, four or eight bytes, or a length and that many bytes. For writing only.
/// Source: protobuf.dev, "Encoding".
class ProtoMessage {
 public:
  void integer(int field, std::int64_t value) {
    varint(key(field, kVarint));
    varint(static_cast<std::uint64_t>(value));
  }
  void number(int field, float value) {
    varint(key(field, kFixed32));
    little_endian(std::bit_cast<std::uint32_t>(value), 4);
  }
  void number(int field, double value) {
    varint(key(field, kFixed64));
    little_endian(std::bit_cast<std::uint64_t>(value), 8);
  }
  void bytes(int field, std::string_view value) {
    head_of_bytes(field, value.size());
    text_ += value;
  }
  /// A repeated field, packed.
  void numbers(int field, std::span<const double> values) {
    head_of_bytes(field, 8 * values.size());
    for (const double value : values) little_endian(std::bit_cast<std::uint64_t>(value), 8);
  }
  void message(int field, const ProtoMessage& value) { bytes(field, value.text_); }
  /// The prefix of a field of `size` bytes that is written separately.
  void head_of_bytes(int field, std::size_t size) {
    varint(key(field, kLengthDelimited));
    varint(size);
  }

  /// Appends the fields of another message.
  void append(ProtoMessage&& more) {
    text_ += more.text_;
    more = ProtoMessage();
  }
  /// Removes all fields; keeps the memory.
  void clear() { text_.clear(); }

  const std::string& text() const { return text_; }

 private:
  enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

  static std::uint64_t key(int field, WireType type) {
    return static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(type);
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_.push_back(static_cast<char>(value | 0x80));
    text_.push_back(static_cast<char>(value));
  }
  void little_endian(std::uint64_t bits, int count) {
    for (int i = 0; i < count; ++i) text_.push_back(static_cast<char>(bits >> 8 * i));
  }

  std::string text_;
};

}  // namespace athanor
