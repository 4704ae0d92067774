#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/io/proto.h"
#include "tensor/shape.h"

// The messages of an ONNX file. Field numbers are those of onnx.proto.

namespace athanor::nn::onnx {

using Message = ProtoMessage;

using AttributeValue =
    std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>, std::vector<float>>;

struct Attribute {
  std::string name;
  AttributeValue value;
};

struct Node {
  std::string op, name;
  std::vector<std::string> inputs, outputs;  ///< "" if omitted
  std::vector<Attribute> attributes;
};

/// An axis of an input or output: a number, or a name for a variable size.
using Dimension = std::variant<std::int64_t, std::string>;

Message node_message(const Node& node);
/// A tensor's elements, dense.
Message tensor_message(std::string_view name, DType dtype, const Shape& shape,
                       std::span<const std::byte> elements);
/// An input or output of the graph.
Message value_message(std::string_view name, DType dtype, std::span<const Dimension> shape);
/// An entry of metadata_props or another string pair.
Message pair_message(std::string_view key, std::string_view value);
/// TensorProto.DataType
std::int64_t data_type(DType dtype);

}  // namespace athanor::nn::onnx
