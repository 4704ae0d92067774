#include "nn/quantized/graph.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include <fmt/ranges.h>

namespace athanor::nn::quantized {
namespace {

std::string described(const Value& value) {
  std::string sizes;
  for (int axis = 0; axis < value.shape.one.rank(); ++axis) {
    const std::int64_t size = value.shape.one[axis];
    const bool grows = value.shape.grows >> axis & 1;
    sizes += fmt::format("{}{}{}", axis ? ", " : "", grows && size == 1 ? "" : fmt::to_string(size),
                         grows ? "N" : "");
  }
  return fmt::format("{} [{}]", value.dtype, sizes);
}

std::string described(const Op& op) {
  if (op.kind == OpKind::product) {
    const Shape& w = op.weight.shape();
    std::string text = op.linear ? fmt::format(", {} x {}", w[0], w[3])
                                 : fmt::format(", {} x {} x {} x {}", w[0], w[1], w[2], w[3]);
    if (op.conv.stride[0] != 1 || op.conv.stride[1] != 1)
      text += fmt::format(", stride {} x {}", op.conv.stride[0], op.conv.stride[1]);
    if (op.conv.groups != 1) text += fmt::format(", {} groups", op.conv.groups);
    return text;
  }
  if (op.calls.empty()) return "";
  std::vector<std::string> names;
  for (const Call& call : op.calls) names.push_back(call.op);
  return fmt::format(", {}", fmt::join(names, " "));
}

}  // namespace

Shape BatchShape::of(std::int64_t images) const {
  Shape shape = one;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (grows >> axis & 1) shape[axis] *= images;
  }
  return shape;
}

std::string_view name_of(OpKind kind) {
  static constexpr std::array<std::string_view, 10> kNames{"quantize", "dequantize", "product",  "max_pool",
                                                           "avg_pool", "add",        "multiply", "table",
                                                           "view",     "real"};
  return kNames.at(static_cast<std::size_t>(kind));
}

const Op* Graph::op_named(std::string_view name) const {
  const auto found = std::find_if(ops.begin(), ops.end(), [&](const Op& op) { return op.name == name; });
  return found == ops.end() ? nullptr : &*found;
}

std::string Graph::str() const {
  const auto value = [this](int i) -> const Value& { return values[static_cast<std::size_t>(i)]; };
  std::string text;
  for (const Op& op : ops) {
    std::vector<std::string> inputs;
    for (const int place : op.inputs)
      inputs.push_back(fmt::format("{}:{}", value(place).name, value(place).dtype));
    text += fmt::format("{}: {}({}{}) -> {}", op.name, name_of(op.kind), fmt::join(inputs, ", "),
                        described(op), described(value(op.output)));
    if (op.low) text += fmt::format(", low {}", *op.low);
    if (op.high) text += fmt::format(", high {}", *op.high);
    text += '\n';
  }
  return text;
}

Quantizer quantizer_of(const Graph& graph, const Value& value) {
  const StoredQuantizer& stored = graph.quantizers.at(static_cast<std::size_t>(value.quantizer));
  return {static_cast<float>(stored.scale.item()), static_cast<std::int32_t>(stored.zero.item())};
}

Tensor integer_bias(const Op& product, const Quantizer& x) {
  constexpr double kMost = std::numeric_limits<std::int32_t>::max();
  const Tensor weight = product.weight.to(kCpu), scales = product.weight_scale.to(kCpu),
               bias = product.bias.to(kCpu);
  const std::int64_t channels = weight.dim(0), each = channels ? weight.numel() / channels : 0;
  const Tensor result = Tensor::empty({channels}, {DType::i32});
  for (std::int64_t k = 0; k < channels; ++k) {
    const std::int8_t* const w = weight.data<std::int8_t>() + k * each;
    std::int64_t sum = 0, absolute = 0;
    for (std::int64_t i = 0; i < each; ++i) {
      sum += w[i];
      absolute += std::abs(w[i]);
    }
    const double unit = static_cast<double>(x.scale) * static_cast<double>(scales.data<float>()[k]);
    const double all = std::nearbyint(static_cast<double>(bias.data<float>()[k]) / unit) -
                       static_cast<double>(x.zero) * static_cast<double>(sum);
    ATH_CHECK(std::abs(all) + 255.0 * static_cast<double>(absolute) <= kMost,
              "quantized: sums of '{}' must fit 32 bits, but channel {} has a bias of {:.6g} units and "
              "weights whose sum is up to {:.6g}",
              product.name, k, all, 255.0 * static_cast<double>(absolute));
    result.data<std::int32_t>()[k] = static_cast<std::int32_t>(all);
  }
  return result;
}

}  // namespace athanor::nn::quantized
