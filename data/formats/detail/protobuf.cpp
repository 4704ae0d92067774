#include "data/formats/detail/protobuf.h"

#include "tensor/error.h"

namespace athanor::detail {

bool ProtobufReader::next() {
  while (!at_end()) {
    const std::uint64_t tag = varint();
    field_ = tag >> 3;
    wire_ = static_cast<Wire>(tag & 7);
    if (field_ == 0) fail("a field's number must be positive, but is 0");
    if (wire_ == Wire::group) {
      skip_group();
      continue;
    }
    read_value();
    return true;
  }
  return false;
}

void ProtobufReader::read_value() {
  std::uint64_t length = 0;
  switch (wire_) {
    case Wire::varint: number_ = varint(); return;
    case Wire::fixed64: length = 8; break;
    case Wire::fixed32: length = 4; break;
    case Wire::length: length = varint(); break;
    default: fail(fmt::format("a field's type must be 0, 1, 2, 3 or 5, but is {}", static_cast<int>(wire_)));
  }
  const std::size_t rest = message_.size() - at_;
  if (length > rest) fail(fmt::format("a field must have {} bytes, but only {} follow", length, rest));
  bytes_ = message_.subspan(at_, static_cast<std::size_t>(length));
  bytes_offset_ = base_ + static_cast<std::int64_t>(at_);
  at_ += static_cast<std::size_t>(length);
}

void ProtobufReader::skip_group() {
  for (std::uint64_t depth = 1; depth > 0;) {
    if (at_end()) fail("a group must end, but does not");
    const std::uint64_t tag = varint();
    wire_ = static_cast<Wire>(tag & 7);
    if (wire_ == Wire::group) {
      ++depth;
    } else if (wire_ == Wire::end_group) {
      --depth;
    } else {
      read_value();
    }
  }
}

std::uint64_t ProtobufReader::varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (at_end()) fail("a number must end, but the message does");
    const auto byte = std::to_integer<std::uint64_t>(message_[at_++]);
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail("a number must have at most 10 bytes, but goes on");
}

void ProtobufReader::fail(const std::string& message) const {
  detail::fail<IoError>("example: offset {}: {}", base_ + static_cast<std::int64_t>(at_), message);
}

void ProtobufWriter::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) message_.push_back(static_cast<std::byte>(value | 0x80));
  message_.push_back(static_cast<std::byte>(value));
}

void ProtobufWriter::bytes(std::uint64_t field, std::span<const std::byte> value) {
  varint(field << 3 | static_cast<std::uint64_t>(ProtobufReader::Wire::length));
  varint(value.size());
  message_.insert(message_.end(), value.begin(), value.end());
}

}  // namespace athanor::detail
