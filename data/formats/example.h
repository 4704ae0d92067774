#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace athanor {

/// A feature of a tf.train.Example: byte strings, which are views of the record, f32 or i64; or nothing.
using Feature = std::variant<std::monostate, std::vector<std::span<const std::byte>>, std::vector<float>,
                             std::vector<std::int64_t>>;
using FeatureMap = std::map<std::string, Feature, std::less<>>;

/// The features of a serialised tf.train.Example, with packed or unpacked lists; unknown fields are skipped.
/// The result points into `record`. Throws IoError with the offset in `record` on an invalid message.
/// Source: tensorflow/core/example/{example,feature}.proto; Protocol Buffers, "Encoding".
FeatureMap read_example(std::span<const std::byte> record);
/// The inverse: in the map's order, numbers packed.
std::string write_example(const FeatureMap& features);

}  // namespace athanor
