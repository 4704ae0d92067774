#include "nn/onnx/detail/quantized.h"

#include "autograd/creation.h"
#include "autograd/shape.h"
#include "nn/onnx/detail/ops.h"

namespace athanor::nn::onnx {
namespace {

constexpr const char* kCaller = "export_onnx";
constexpr int kChannelsFirst[] = {0, 3, 1, 2};

/// A value that is never read, in the shape of each batch.
Value value_of(const Tensor& one, const quantized::BatchShape& shape, bool varies) {
  return {.two = expand(one, shape.of(traced::kBatches[0])),
          .three = expand(one, shape.of(traced::kBatches[1])),
          .name = {},
          .varies = varies,
          .caller = kCaller};
}

Tensor dense(const Tensor& x) {
  return clone(x.detach().to(kCpu));
}

/// scale [K] of a product's sums, in f32: what its bias counts.
Tensor bias_scale(const quantized::Op& op, const Quantizer& x) {
  const Tensor scale = dense(op.weight_scale);
  for (std::int64_t k = 0; k < scale.numel(); ++k) scale.data<float>()[k] *= x.scale;
  return scale;
}

/// The bias in those units, without what the zero of x adds.
Tensor bias_without_zero(const quantized::Op& op, const Quantizer& x) {
  const Tensor bias = quantized::integer_bias(op, x), weight = dense(op.weight);
  const std::int64_t rows = bias.numel(), width = rows == 0 ? 0 : weight.numel() / rows;
  const auto* from = weight.data<std::int8_t>();
  for (std::int64_t k = 0; k < rows; ++k) {
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += *from++;
    bias.data<std::int32_t>()[k] += x.zero * sum;
  }
  return bias;
}

std::string bounded(Graph& graph, const quantized::Op& op, const std::string& x) {
  if (!op.low && !op.high) return x;
  if (op.low == 0 && !op.high) return graph.node("Relu", {x});
  const auto bound = [&](const std::optional<double>& number) {
    return number ? graph.numbers({static_cast<float>(*number)}) : "";
  };
  std::vector<std::string> inputs{x, bound(op.low)};
  if (op.high) inputs.push_back(bound(op.high));
  return graph.node("Clip", inputs);
}

}  // namespace

QuantizedProgram::QuantizedProgram(const quantized::Graph& network)
    : network_(network), quantizers_(network.quantizers.size()) {
  for (const quantized::Value& value : network.values)
    values_.push_back(&new_value(value.shape, value.dtype == DType::u8 ? DType::f32 : value.dtype));
}

Value& QuantizedProgram::new_value(const quantized::BatchShape& shape, DType dtype) {
  return all_.emplace_back(value_of(zeros({}, {dtype}), shape, true));
}

Value& QuantizedProgram::constant(const quantized::Constant& constant) {
  Value& value = all_.emplace_back(value_of(constant.value, constant.shape, false));
  value.name = constant.name;
  return value;
}

void QuantizedProgram::lower(Graph& graph) {
  for (const quantized::Op& op : network_.ops) lower(graph, op);
}

void QuantizedProgram::lower(Graph& graph, const quantized::Op& op) {
  using quantized::OpKind;
  graph.set_layer(op.name);
  Value& y = at(op.output);
  const bool bounds = op.low || op.high;
  const bool moves = op.kind == OpKind::view || op.kind == OpKind::real || op.kind == OpKind::dequantize;
  // What a view moves has been stored as its result is.
  Value& result = !bounds && (moves || stored(op.output).dtype != DType::u8)
                      ? y
                      : new_value(stored(op.output).shape, DType::f32);
  switch (op.kind) {
    case OpKind::quantize:
    case OpKind::dequantize: graph.alias(result, at(op.inputs.at(0))); break;
    case OpKind::product: lower_product(graph, op, result); break;
    default: lower_calls(graph, op, result);
  }
  if (&result != &y) finish(graph, op, result);
}

void QuantizedProgram::finish(Graph& graph, const quantized::Op& op, Value& result) {
  const Layout layout = graph.layout_of(result);
  const std::string y = bounded(graph, op, graph.tensor(result, layout));
  graph.define(at(op.output), stored_as(graph, y, stored(op.output)), layout);
}

std::string QuantizedProgram::stored_as(Graph& graph, const std::string& x, const quantized::Value& value) {
  if (value.dtype != DType::u8) return x;
  auto& names = quantizers_.at(static_cast<std::size_t>(value.quantizer));
  if (names.empty()) {
    const auto& [name, scale, zero] = network_.quantizers[static_cast<std::size_t>(value.quantizer)];
    names = {graph.constant(scale, name + ".scale"), graph.constant(zero, name + ".zero")};
  }
  const std::string integers = graph.node("QuantizeLinear", {x, names[0], names[1]});
  return graph.node("DequantizeLinear", {integers, names[0], names[1]});
}

// Calls ----------------------------------------------------------------------------------------------------

void QuantizedProgram::lower_calls(Graph& graph, const quantized::Op& op, Value& result) {
  std::vector<Value*> constants, results;
  for (const quantized::Constant& one : op.constants) constants.push_back(&constant(one));
  for (const quantized::Call& call : op.calls) {
    TracedOp& traced =
        calls_.emplace_back(TracedOp{.name = call.op, .outputs = {}, .inputs = {}, .attributes = {}});
    for (const quantized::Attribute& attribute : call.attributes)
      traced.attributes.push_back({attribute.name, attribute.values});
    const bool last = &call == &op.calls.back();
    results.push_back(last ? &result : &new_value(call.result, call.dtype));
    Op& one = ops_.emplace_back(Op{call.op, {}, {results.back()}, &traced, &traced, op.name, kCaller});
    for (const auto& [from, index] : call.operands) {
      const auto place = static_cast<std::size_t>(index);
      switch (from) {
        case quantized::Operand::From::none: one.inputs.push_back(nullptr); break;
        case quantized::Operand::From::input: one.inputs.push_back(&at(op.inputs.at(place))); break;
        case quantized::Operand::From::constant: one.inputs.push_back(constants.at(place)); break;
        case quantized::Operand::From::call: one.inputs.push_back(results.at(place)); break;
      }
    }
    onnx::lower(graph, one);
  }
}

// Products -------------------------------------------------------------------------------------------------

/// The weights and the bias; `channels`: the axis of the output channels in these weights.
std::vector<std::string> QuantizedProgram::factors(Graph& graph, const quantized::Op& op,
                                                   const Tensor& weight, int channels) {
  const std::string name = op.name + ".weight", bias_name = op.name + ".bias";
  if (!op.in_int8()) return {graph.constant(weight, name), graph.constant(op.bias, bias_name)};
  const auto of = [](std::int64_t axis) { return std::vector<Attribute>{{"axis", axis}}; };
  const Quantizer x = quantized::quantizer_of(network_, stored(op.inputs.at(0)));
  const Tensor none = zeros({weight.dim(channels)}, {DType::i8});
  return {graph.node("DequantizeLinear",
                     {graph.constant(weight, name), graph.constant(op.weight_scale, name + "_scale"),
                      graph.constant(none, name + "_zero")},
                     of(channels)),
          graph.node("DequantizeLinear",
                     {graph.constant(bias_without_zero(op, x), bias_name),
                      graph.constant(bias_scale(op, x), bias_name + "_scale")},
                     of(0))};
}

void QuantizedProgram::lower_product(Graph& graph, const quantized::Op& op, Value& result) {
  Value& x = at(op.inputs.at(0));
  const Tensor weight = dense(op.weight);  // [K, R, S, C / groups]
  const Shape matrix{weight.dim(0), weight.dim(3)};
  Layout layout = Layout::ours;
  std::string y;
  if (!op.linear) {
    layout = Layout::nchw;
    const auto pair = [](const std::int64_t(&values)[2]) {
      return std::vector<std::int64_t>{values[0], values[1]};
    };
    std::vector<std::string> inputs{graph.tensor(x, layout)};
    for (const std::string& one : factors(graph, op, permute(weight, kChannelsFirst), 0))
      inputs.push_back(one);
    y = graph.node("Conv", inputs,
                   {{"dilations", pair(op.conv.dilation)},
                    {"group", op.conv.groups},
                    {"kernel_shape", std::vector<std::int64_t>{weight.dim(1), weight.dim(2)}},
                    {"pads", twice(pair(op.conv.padding))},
                    {"strides", pair(op.conv.stride)}});
  } else if (op.conv.groups > 1) {  // a lone norm: a factor and a summand for each channel
    const std::vector<std::string> two = factors(graph, op, reshape(weight, {weight.dim(0)}), 0);
    y = graph.node("Add", {graph.node("Mul", {graph.tensor(x), two[0]}), two[1]});
  } else if (x.rank() == 2) {
    // Images in nchw are flattened in that order, and the columns of the weights are permuted to match.
    Value* const images = graph.flattened_images(x);
    Tensor columns = reshape(weight, matrix);
    std::string from;
    if (images) {
      const Shape& shape = images->two.shape();
      columns = reshape(permute(reshape(weight, {matrix[0], shape[1], shape[2], shape[3]}), kChannelsFirst),
                        matrix);
      from = graph.node("Flatten", {graph.tensor(*images, Layout::nchw)}, {{"axis", std::int64_t{1}}});
    } else {
      from = graph.tensor(x);
    }
    std::vector<std::string> inputs{from};
    for (const std::string& one : factors(graph, op, columns, 0)) inputs.push_back(one);
    y = graph.node("Gemm", inputs, {{"transB", std::int64_t{1}}});
  } else {
    const std::vector<std::string> two = factors(graph, op, permute(reshape(weight, matrix), {1, 0}), 1);
    y = graph.node("Add", {graph.node("MatMul", {graph.tensor(x), two[0]}), two[1]});
  }
  if (op.inputs.size() > 1) y = graph.node("Add", {y, graph.tensor(at(op.inputs[1]), layout)});
  graph.define(result, y, layout);
}

}  // namespace athanor::nn::onnx
