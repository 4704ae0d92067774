#include "data/formats/example.h"

#include "data/formats/detail/bytes.h"
#include "tensor/error.h"

namespace athanor {
namespace {

using Bytes = std::span<const std::byte>;
using ByteStrings = std::vector<Bytes>;

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, length = 2, group = 3, end_group = 4, fixed32 = 5 };

/// Iterates over the fields of a serialised message. Offsets are relative to the outermost one.
class ProtobufReader {
 public:
  explicit ProtobufReader(Bytes message, std::int64_t offset = 0) : message_(message), base_(offset) {}

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
  Bytes bytes() const { return bytes_; }
  ProtobufReader message() const { return ProtobufReader(bytes_, bytes_offset_); }

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
    detail::fail<IoError>("example: offset {}: {}", base_ + static_cast<std::int64_t>(at_),
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
    bytes_offset_ = base_ + static_cast<std::int64_t>(at_);
    at_ += static_cast<std::size_t>(length);
  }

  Bytes message_;
  std::int64_t base_;
  std::size_t at_ = 0;
  std::uint64_t field_ = 0, number_ = 0;
  Wire wire_ = Wire::varint;
  Bytes bytes_;
  std::int64_t bytes_offset_ = 0;
};

/// Builds a message of length-delimited fields.
struct ProtobufWriter : detail::ByteWriter {
  ProtobufWriter& varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<std::byte>(value | 0x80));
    bytes.push_back(static_cast<std::byte>(value));
    return *this;
  }
  ProtobufWriter& field(std::uint64_t number, Bytes value) {
    varint(number << 3 | static_cast<std::uint64_t>(Wire::length)).varint(value.size()).add(value);
    return *this;
  }
};

// Example { 1: Features { 1, repeated: entry { 1: key, 2: Feature { 1: BytesList | 2: FloatList | 3:
// Int64List } } } } and a list is { 1, repeated: value }.

/// The feature's list of that kind; replaces one of another kind.
template <class List> List& list_of(Feature& feature) {
  if (!std::holds_alternative<List>(feature)) feature.emplace<List>();
  return std::get<List>(feature);
}

void read_floats(ProtobufReader list, std::vector<float>& to) {
  while (list.next()) {
    if (!list.is(1, Wire::fixed32) && !list.is(1, Wire::length)) continue;
    const Bytes packed = list.bytes();
    if (packed.size() % 4 != 0) list.fail("packed floats must have 4 bytes each, but bytes are missing");
    for (std::size_t i = 0; i < packed.size(); i += 4)
      to.push_back(detail::load_le<float>(packed.subspan(i)));
  }
}

void read_ints(ProtobufReader list, std::vector<std::int64_t>& to) {
  while (list.next()) {
    if (list.is(1, Wire::varint)) {
      to.push_back(static_cast<std::int64_t>(list.number()));
    } else if (list.is(1, Wire::length)) {
      for (ProtobufReader packed = list.message(); !packed.at_end();) {
        to.push_back(static_cast<std::int64_t>(packed.varint()));
      }
    }
  }
}

void read_feature(ProtobufReader message, Feature& feature) {
  while (message.next()) {
    if (message.is(1, Wire::length)) {
      auto& to = list_of<ByteStrings>(feature);
      for (ProtobufReader list = message.message(); list.next();) {
        if (list.is(1, Wire::length)) to.push_back(list.bytes());
      }
    } else if (message.is(2, Wire::length)) {
      read_floats(message.message(), list_of<std::vector<float>>(feature));
    } else if (message.is(3, Wire::length)) {
      read_ints(message.message(), list_of<std::vector<std::int64_t>>(feature));
    }
  }
}

void read_entry(ProtobufReader entry, FeatureMap& features) {
  std::string key;
  Feature feature;
  while (entry.next()) {
    if (entry.is(1, Wire::length)) {
      key = detail::text_of(entry.bytes());
    } else if (entry.is(2, Wire::length)) {
      read_feature(entry.message(), feature);
    }
  }
  features.insert_or_assign(std::move(key), std::move(feature));
}

std::vector<std::byte> feature_message(const Feature& feature) {
  ProtobufWriter list, packed, message;
  if (const auto* strings = std::get_if<ByteStrings>(&feature)) {
    for (const Bytes value : *strings) list.field(1, value);
  } else if (const auto* floats = std::get_if<std::vector<float>>(&feature)) {
    for (const float value : *floats) packed.le(value);
    list.field(1, packed.bytes);
  } else if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&feature)) {
    for (const std::int64_t value : *ints) packed.varint(static_cast<std::uint64_t>(value));
    list.field(1, packed.bytes);
  } else {
    return {};
  }
  return std::move(message.field(feature.index(), list.bytes).bytes);
}

}  // namespace

FeatureMap read_example(Bytes record) {
  FeatureMap features;
  for (ProtobufReader example(record); example.next();) {
    if (!example.is(1, Wire::length)) continue;
    for (ProtobufReader map = example.message(); map.next();) {
      if (map.is(1, Wire::length)) read_entry(map.message(), features);
    }
  }
  return features;
}

std::vector<std::byte> write_example(const FeatureMap& features) {
  ProtobufWriter map, example;
  for (const auto& [key, feature] : features) {
    ProtobufWriter entry;
    entry.field(1, detail::bytes_of(key)).field(2, feature_message(feature));
    map.field(1, entry.bytes);
  }
  return std::move(example.field(1, map.bytes).bytes);
}

}  // namespace athanor
