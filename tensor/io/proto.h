#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tensor/base/error.h"

// Messages in protobuf's wire format: a field is its number and type in a varint, then a varint, four or
// eight bytes, or a length and that many bytes. Source: protobuf.dev, "Encoding".

namespace athanor {

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, length = 2, group = 3, end_group = 4, fixed32 = 5 };

/// A message under construction.
class ProtoMessage {
 public:
  void integer(int field, std::int64_t value) {
    varint(key(field, Wire::varint));
    varint(static_cast<std::uint64_t>(value));
  }
  void number(int field, float value) {
    varint(key(field, Wire::fixed32));
    little_endian(std::bit_cast<std::uint32_t>(value), 4);
  }
  void number(int field, double value) {
    varint(key(field, Wire::fixed64));
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
  void numbers(int field, std::span<const float> values) {
    head_of_bytes(field, 4 * values.size());
    for (const float value : values) little_endian(std::bit_cast<std::uint32_t>(value), 4);
  }
  void numbers(int field, std::span<const std::int64_t> values) {
    ProtoMessage packed;
    for (const std::int64_t value : values) packed.varint(static_cast<std::uint64_t>(value));
    message(field, packed);
  }
  void message(int field, const ProtoMessage& value) { bytes(field, value.text_); }
  /// The prefix of a field of `size` bytes that is written separately.
  void head_of_bytes(int field, std::size_t size) {
    varint(key(field, Wire::length));
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
  static std::uint64_t key(int field, Wire type) {
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

/// The fields of a message of unknown origin, in order. Throws IoError, "FORMAT: offset N: ...", if they are
/// damaged; offsets are relative to the outermost message.
class ProtoReader {
 public:
  ProtoReader(std::span<const std::byte> message, const char* format) : message_(message), format_(format) {}

  /// Steps to the next field; false at the end. Groups are skipped.
  bool next() {
    for (std::uint64_t depth = 0; !at_end() || depth > 0;) {
      if (at_end()) fail("a group must end, but does not");
      const std::uint64_t tag = varint();
      field_ = tag >> 3;
      wire_ = static_cast<Wire>(tag & 7);
      if (field_ == 0 && depth == 0) fail("a field's number must be positive, but is 0");
      if (wire_ == Wire::group) {
        ++depth;
      } else if (wire_ == Wire::end_group && depth > 0) {
        --depth;
      } else {
        read_value();
        if (depth == 0) return true;
      }
    }
    return false;
  }
  bool is(std::uint64_t field, Wire wire) const { return field_ == field && wire_ == wire; }
  /// For a varint, its value. For other fields, the bytes, and the bytes as a message.
  std::uint64_t number() const { return number_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  ProtoReader message() const {
    ProtoReader inner(bytes_, format_);
    inner.base_ = bytes_offset_;
    return inner;
  }

  bool at_end() const { return at_ == message_.size(); }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_end()) fail("a number must end, but the message does");
      const auto byte = std::to_integer<std::uint64_t>(message_[at_++]);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail("a number must have at most 10 bytes, but has more");
  }
  template <class... Args> [[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) const {
    detail::fail<IoError>("{}: offset {}: {}", format_, base_ + at_,
                          fmt::format(message, std::forward<Args>(args)...));
  }

 private:
  void read_value() {
    std::uint64_t length = 0;
    switch (wire_) {
      case Wire::varint: number_ = varint(); return;
      case Wire::fixed64: length = 8; break;
      case Wire::fixed32: length = 4; break;
      case Wire::length: length = varint(); break;
      default: fail("a field's type must be 0, 1, 2, 3 or 5, but is {}", static_cast<int>(wire_));
    }
    const std::size_t rest = message_.size() - at_;
    if (length > rest) fail("a field must have {} bytes, but only {} follow", length, rest);
    bytes_ = message_.subspan(at_, static_cast<std::size_t>(length));
    bytes_offset_ = base_ + at_;
    at_ += static_cast<std::size_t>(length);
  }

  std::span<const std::byte> message_;
  const char* format_;
  std::size_t base_ = 0, at_ = 0;
  std::uint64_t field_ = 0, number_ = 0;
  Wire wire_ = Wire::varint;
  std::span<const std::byte> bytes_;
  std::size_t bytes_offset_ = 0;
};

}  // namespace athanor
