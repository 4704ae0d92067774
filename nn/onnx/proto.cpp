#include "nn/onnx/detail/proto.h"

#include <type_traits>

#include "tensor/base/error.h"

namespace athanor::nn::onnx {
namespace {

Message attribute_message(const Attribute& attribute) {
  enum Type { kFloat = 1, kInt = 2, kString = 3, kFloats = 6, kInts = 7 };
  Message message;
  message.bytes(1, attribute.name);
  const Type type = std::visit(
      [&](const auto& value) {
        using V = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<V, std::int64_t>) {
          message.integer(3, value);
          return kInt;
        } else if constexpr (std::is_same_v<V, float>) {
          message.number(2, value);
          return kFloat;
        } else if constexpr (std::is_same_v<V, std::string>) {
          message.bytes(4, value);
          return kString;
        } else if constexpr (std::is_same_v<V, std::vector<std::int64_t>>) {
          for (const std::int64_t one : value) message.integer(8, one);
          return kInts;
        } else {
          for (const float one : value) message.number(7, one);
          return kFloats;
        }
      },
      attribute.value);
  message.integer(20, type);
  return message;
}

}  // namespace

Message node_message(const Node& node) {
  Message message;
  for (const std::string& input : node.inputs) message.bytes(1, input);
  for (const std::string& output : node.outputs) message.bytes(2, output);
  message.bytes(3, node.name);
  message.bytes(4, node.op);
  for (const Attribute& attribute : node.attributes) message.message(5, attribute_message(attribute));
  return message;
}

Message tensor_message(std::string_view name, DType dtype, const Shape& shape,
                       std::span<const std::byte> elements) {
  Message message;
  for (const std::int64_t size : shape) message.integer(1, size);
  message.integer(2, data_type(dtype));
  message.bytes(8, name);
  message.bytes(9, {reinterpret_cast<const char*>(elements.data()), elements.size()});
  return message;
}

Message value_message(std::string_view name, DType dtype, std::span<const Dimension> shape) {
  Message dimensions, tensor, type, value;
  for (const Dimension& dimension : shape) {
    Message one;
    if (const auto* const size = std::get_if<std::int64_t>(&dimension)) {
      one.integer(1, *size);
    } else {
      one.bytes(2, std::get<std::string>(dimension));
    }
    dimensions.message(1, one);
  }
  tensor.integer(1, data_type(dtype));
  tensor.message(2, dimensions);
  type.message(1, tensor);
  value.bytes(1, name);
  value.message(2, type);
  return value;
}

Message pair_message(std::string_view first, std::string_view second) {
  Message message;
  message.bytes(1, first);
  message.bytes(2, second);
  return message;
}

std::int64_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return 1;
    case DType::u8: return 2;
    case DType::i8: return 3;
    case DType::i32: return 6;
    case DType::i64: return 7;
    case DType::boolean: return 9;
    case DType::f16: return 10;
    case DType::f64: return 11;
    case DType::bf16: return 16;
  }
  detail::fail<>("onnx: dtype {} has no ONNX equivalent", dtype);
}

}  // namespace athanor::nn::onnx
