#include "data/formats/example.h"

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/protobuf.h"

namespace athanor {
namespace {

using detail::ProtobufReader;
using detail::ProtobufWriter;
using Wire = ProtobufReader::Wire;
using ByteStrings = std::vector<std::span<const std::byte>>;

// Example { 1: Features { 1, repeated: entry { 1: key, 2: Feature { 1: BytesList | 2: FloatList | 3:
// Int64List } } } } and a list is { 1, repeated: value }.

/// The feature's list of that kind; one of another kind, set before, goes.
template <class List> List& list_of(Feature& feature) {
  if (!std::holds_alternative<List>(feature)) feature.emplace<List>();
  return std::get<List>(feature);
}

void read_floats(ProtobufReader list, std::vector<float>& to) {
  while (list.next()) {
    if (list.is(1, Wire::fixed32)) {
      to.push_back(detail::load_le<float>(list.bytes()));
    } else if (list.is(1, Wire::length)) {
      const std::span<const std::byte> packed = list.bytes();
      if (packed.size() % 4 != 0) list.fail("packed floats must have 4 bytes each, but some are missing");
      for (std::size_t i = 0; i < packed.size(); i += 4) {
        to.push_back(detail::load_le<float>(packed.subspan(i)));
      }
    }
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
  ProtobufWriter list, message;
  if (const auto* strings = std::get_if<ByteStrings>(&feature)) {
    for (const std::span<const std::byte> value : *strings) list.bytes(1, value);
  } else if (const auto* floats = std::get_if<std::vector<float>>(&feature)) {
    ProtobufWriter packed;
    for (const float value : *floats) {
      for (const std::byte byte : detail::stored_le(value)) packed.message().push_back(byte);
    }
    list.bytes(1, packed.message());
  } else if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&feature)) {
    ProtobufWriter packed;
    for (const std::int64_t value : *ints) packed.varint(static_cast<std::uint64_t>(value));
    list.bytes(1, packed.message());
  } else {
    return {};
  }
  message.bytes(feature.index(), list.message());
  return message.message();
}

}  // namespace

FeatureMap read_example(std::span<const std::byte> record) {
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
    entry.bytes(1, detail::bytes_of(key));
    entry.bytes(2, feature_message(feature));
    map.bytes(1, entry.message());
  }
  example.bytes(1, map.message());
  return std::move(example.message());
}

}  // namespace athanor
