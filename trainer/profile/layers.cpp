#include "trainer/profile/layers.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "autograd/grad_mode.h"
#include "autograd/op_trace.h"
#include "kernels/account/flops.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "trainer/readable.h"

namespace athanor {
namespace {

using Address = const std::byte*;

std::int64_t flops_of(const TracedOp& op) {
  const auto &in = op.inputs, &out = op.outputs;
  if (in.size() < 2) return 0;  // one with packed weights
  if (op.name == "conv2d" || op.name == "linear") return layer_flops(in[1].shape(), out[0].numel());
  if (op.name == "conv_transpose2d") return transposed_flops(in[1].shape(), in[0].numel());
  if (op.name == "matmul") return product_flops(out[0].numel(), in[0].dim(-1));
  return 0;
}

/// "layer1.0.conv1" for "layer1.0.conv1.weight"; the name of a parameter of the whole network.
std::string module_of(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == parameter.npos ? parameter : parameter.substr(0, dot);
}

/// "1.82 G", "3.21 MB", "40 B".
std::string scaled(std::int64_t count, const char* unit = "") {
  constexpr std::pair<double, const char*> kScales[]{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  const auto value = static_cast<double>(count);
  for (const auto& [scale, letter] : kScales) {
    if (value >= scale) return fmt::format("{:.2f} {}{}", value / scale, letter, unit);
  }
  return count == 0 ? "-" : fmt::format("{}{}{}", count, *unit == 0 ? "" : " ", unit);
}

struct Row {
  std::string layer, op, output, parameters, flops, bytes;
};

std::string shape_of(const Shape& shape) {
  return fmt::format("{}", fmt::join(shape.begin(), shape.end(), "x"));
}

}  // namespace

std::vector<Layer> trace_layers(const nn::Module& network, const std::function<void()>& forward) {
  std::map<Address, std::string> modules;      // of parameters
  std::map<std::string, std::int64_t> counts;  // of parameters not yet seen
  for (const Parameter& parameter : network.parameters()) {
    modules[parameter.tensor.raw_data()] = module_of(parameter.name);
    counts[module_of(parameter.name)] += parameter.tensor.numel();
  }
  const NoGrad no_grad;
  OpTrace trace;
  try {
    forward();
  } catch (const Error&) {  // the network expects another input
  }
  std::vector<Layer> layers;
  std::set<Address> seen;
  for (const TracedOp& op : trace.ops()) {
    Layer layer;
    layer.op = op.name;
    layer.output = op.outputs[0].shape();
    layer.flops = flops_of(op);
    for (const Tensor& input : op.inputs) {
      if (!input.defined()) continue;
      const auto found = modules.find(input.raw_data());
      if (found != modules.end() && layer.name.empty()) layer.name = found->second;
      seen.insert(input.raw_data());
    }
    if (const auto found = counts.find(layer.name); found != counts.end())
      layer.parameters = std::exchange(found->second, 0);
    for (const Tensor& output : op.outputs) {
      if (output.defined() && seen.insert(output.raw_data()).second)
        layer.activation_bytes += static_cast<std::int64_t>(output.bytes());
    }
    const bool view = layer.name.empty() && layer.activation_bytes == 0;
    if (!view) layers.push_back(std::move(layer));
  }
  return layers;
}

std::string table_of(const std::vector<Layer>& layers, std::int64_t parameters) {
  std::vector<Row> rows{{"layer", "op", "output", "parameters", "FLOPs", "activations"}};
  Layer all;
  for (const Layer& layer : layers) {
    rows.push_back({printable(layer.name), layer.op, shape_of(layer.output),
                    layer.parameters == 0 ? "-" : with_commas(layer.parameters), scaled(layer.flops),
                    scaled(layer.activation_bytes, "B")});
    all.flops += layer.flops;
    all.activation_bytes += layer.activation_bytes;
  }
  rows.push_back(
      {"total", "", "", with_commas(parameters), scaled(all.flops), scaled(all.activation_bytes, "B")});
  const auto width = [&](std::string Row::*column) {
    std::size_t widest = 0;
    for (const Row& row : rows) widest = std::max(widest, (row.*column).size());
    return widest;
  };
  const std::size_t layer = width(&Row::layer), op = width(&Row::op), output = width(&Row::output);
  std::string text;
  for (const Row& row : rows)
    text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>12}  {:>10}  {:>11}\n", row.layer, layer, row.op, op,
                        row.output, output, row.parameters, row.flops, row.bytes);
  return text +
         "for one image, forward; FLOPs: two for each multiply-add of convolutions and matrix products\n";
}

}  // namespace athanor
