#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace athanor::detail {

/// Walks over the fields of a serialised message. Offsets are those of the outermost one.
class ProtobufReader {
 public:
  enum class Wire : std::uint8_t {
    varint = 0,
    fixed64 = 1,
    length = 2,
    group = 3,
    end_group = 4,
    fixed32 = 5
  };

  explicit ProtobufReader(std::span<const std::byte> message, std::int64_t offset = 0)
      : message_(message), base_(offset) {}

  /// Steps to the next field; false at the end. Groups are skipped.
  bool next();
  std::uint64_t field() const { return field_; }
  bool is(std::uint64_t field, Wire wire) const { return field_ == field && wire_ == wire; }
  /// Of a varint: its value.
  std::uint64_t number() const { return number_; }
  /// Of everything else: its bytes.
  std::span<const std::byte> bytes() const { return bytes_; }
  /// The same bytes as a message.
  ProtobufReader message() const { return ProtobufReader(bytes_, bytes_offset_); }

  bool at_end() const { return at_ == message_.size(); }
  std::uint64_t varint();
  /// Throws IoError.
  [[noreturn]] void fail(const std::string& message) const;

 private:
  void read_value();
  void skip_group();

  std::span<const std::byte> message_;
  std::int64_t base_;
  std::size_t at_ = 0;
  std::uint64_t field_ = 0, number_ = 0;
  Wire wire_ = Wire::varint;
  std::span<const std::byte> bytes_;
  std::int64_t bytes_offset_ = 0;
};

/// Appends fields to a message.
class ProtobufWriter {
 public:
  void varint(std::uint64_t value);
  void bytes(std::uint64_t field, std::span<const std::byte> value);
  std::vector<std::byte>& message() { return message_; }

 private:
  std::vector<std::byte> message_;
};

}  // namespace athanor::detail
