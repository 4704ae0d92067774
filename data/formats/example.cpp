#include "data/formats/example.h"

#include "data/formats/detail/bytes.h"
#include "tensor/io/proto.h"

namespace athanor {
namespace {

using Bytes = std::span<const std::byte>;
using ByteStrings = std::vector<Bytes>;

// Example { 1: Features { 1, repeated: entry { 1: key, 2: Feature { 1: BytesList | 2: FloatList | 3:
// Int64List } } } } and a list is { 1, repeated: value }.

/// The feature's list of that kind; replaces one of another kind.
template <class List> List& list_of(Feature& feature) {
  if (!std::holds_alternative<List>(feature)) feature.emplace<List>();
  return std::get<List>(feature);
}

void read_floats(ProtoReader list, std::vector<float>& to) {
  while (list.next()) {
    if (!list.is(1, Wire::fixed32) && !list.is(1, Wire::length)) continue;
    const Bytes packed = list.bytes();
    if (packed.size() % 4 != 0) list.fail("packed floats must have 4 bytes each, but bytes are missing");
    for (std::size_t i = 0; i < packed.size(); i += 4)
      to.push_back(detail::load_le<float>(packed.subspan(i)));
  }
}

void read_ints(ProtoReader list, std::vector<std::int64_t>& to) {
  while (list.next()) {
    if (list.is(1, Wire::varint)) {
      to.push_back(static_cast<std::int64_t>(list.number()));
    } else if (list.is(1, Wire::length)) {
      for (ProtoReader packed = list.message(); !packed.at_end();) {
        to.push_back(static_cast<std::int64_t>(packed.varint()));
      }
    }
  }
}

void read_feature(ProtoReader message, Feature& feature) {
  while (message.next()) {
    if (message.is(1, Wire::length)) {
      auto& to = list_of<ByteStrings>(feature);
      for (ProtoReader list = message.message(); list.next();) {
        if (list.is(1, Wire::length)) to.push_back(list.bytes());
      }
    } else if (message.is(2, Wire::length)) {
      read_floats(message.message(), list_of<std::vector<float>>(feature));
    } else if (message.is(3, Wire::length)) {
      read_ints(message.message(), list_of<std::vector<std::int64_t>>(feature));
    }
  }
}

void read_entry(ProtoReader entry, FeatureMap& features) {
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

ProtoMessage feature_message(const Feature& feature) {
  ProtoMessage list, message;
  if (const auto* strings = std::get_if<ByteStrings>(&feature)) {
    for (const Bytes value : *strings) list.bytes(1, detail::text_of(value));
  } else if (const auto* floats = std::get_if<std::vector<float>>(&feature)) {
    list.numbers(1, *floats);
  } else if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&feature)) {
    list.numbers(1, *ints);
  } else {
    return message;
  }
  message.message(static_cast<int>(feature.index()), list);
  return message;
}

}  // namespace

FeatureMap read_example(Bytes record) {
  FeatureMap features;
  for (ProtoReader example(record, "example"); example.next();) {
    if (!example.is(1, Wire::length)) continue;
    for (ProtoReader map = example.message(); map.next();) {
      if (map.is(1, Wire::length)) read_entry(map.message(), features);
    }
  }
  return features;
}

std::string write_example(const FeatureMap& features) {
  ProtoMessage map, example;
  for (const auto& [key, feature] : features) {
    ProtoMessage entry;
    entry.bytes(1, key);
    entry.message(2, feature_message(feature));
    map.message(1, entry);
  }
  example.message(1, map);
  return example.text();
}

}  // namespace athanor
