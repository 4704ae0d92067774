#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

// The messages of an ONNX file in the wire format of protobuf: fields, each a number and a type in a varint,
// then a varint, four bytes, or a length and so many bytes. Field numbers are those of onnx.proto. Written
// only, never read.

namespace athanor::nn::onnx {

/// A message under construction.
class Message {
 public:
  void integer(int field, std::int64_t value);
  void number(int field, float value);
  void bytes(int field, std::string_view value);
  void message(int field, const Message& value) { bytes(field, value.text_); }
  /// What comes before a field of `size` bytes that is written apart.
  void head_of_bytes(int field, std::size_t size);

  /// The fields of another.
  void append(Message&& more);

  const std::string& text() const { return text_; }

 private:
  void varint(std::uint64_t value);

  std::string text_;
};

using AttributeValue =
    std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>, std::vector<float>>;

struct Attribute {
  std::string name;
  AttributeValue value;
};

struct Node {
  std::string op, name;
  std::vector<std::string> inputs, outputs;  ///< "" where one is left out
  std::vector<Attribute> attributes;
};

/// An axis of an input or output: a number, or a name where it may be any.
using Dimension = std::variant<std::int64_t, std::string>;

Message node_message(const Node& node);
/// A tensor's elements, dense.
Message tensor_message(std::string_view name, DType dtype, const Shape& shape,
                       std::span<const std::byte> elements);
/// An input or output of the graph.
Message value_message(std::string_view name, DType dtype, std::span<const Dimension> shape);
/// One of the texts in metadata_props, or another pair of the two.
Message pair_message(std::string_view key, std::string_view value);
/// TensorProto.DataType
std::int64_t data_type(DType dtype);

}  // namespace athanor::nn::onnx
