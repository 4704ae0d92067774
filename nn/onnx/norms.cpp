#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/grad_mode.h"
#include "nn/onnx/detail/ops.h"

namespace athanor::nn::onnx {
namespace {

std::string or_filled(Graph& graph, Value* value, float fill, std::int64_t size) {
  if (value) return graph.tensor(*value);
  return graph.numbers(std::vector<float>(static_cast<std::size_t>(size), fill), {size});
}

// (x - mean) / sqrt(var + eps) * gamma + beta over the last axis, as one product and one sum.
std::string fixed_norm(Graph& graph, const Op& op) {
  const NoGrad no_grad;
  const auto values_of = [&](int i, double fill) {
    Value* const value = op.optional(i);
    return value ? value->two.detach().to(kCpu) : full({op.x().two.dim(-1)}, fill);
  };
  const Tensor scale = rsqrt(affine(values_of(4, 1), 1, op.number("eps"))) * values_of(1, 1);
  const Tensor shift = values_of(2, 0) - values_of(3, 0) * scale;
  return graph.node(
      "Add", {graph.node("Mul", {graph.tensor(op.x()), graph.constant(scale)}), graph.constant(shift)});
}

void lower_batch_norm(Graph& graph, const Op& op) {
  if (op.integer("training") != 0) refuse(op, "it is in training mode");
  const int rank = op.x().rank();
  const std::int64_t channels = op.x().two.dim(-1);
  const Layout layout = rank == 4 ? Layout::nchw : Layout::ours;
  std::string y;
  if (rank == 2 || rank == 4) {
    y = graph.node(
        "BatchNormalization",
        {graph.tensor(op.x(), layout), or_filled(graph, op.optional(1), 1, channels),
         or_filled(graph, op.optional(2), 0, channels), graph.tensor(op.x(3)), graph.tensor(op.x(4))},
        {{"epsilon", static_cast<float>(op.number("eps"))}});
  } else {
    y = fixed_norm(graph, op);
  }
  if (Value* const residual = op.optional(5)) y = graph.node("Add", {y, graph.tensor(*residual, layout)});
  graph.define(op.y(), activated(graph, op.integer("activation"), y), layout);
}

void lower_layer_norm(Graph& graph, const Op& op) {
  const std::int64_t axes = op.integer("axes");
  std::vector<std::string> inputs{graph.tensor(op.x())};
  if (Value* const gamma = op.optional(1)) {
    inputs.push_back(graph.tensor(*gamma));
  } else {
    Shape shape;
    for (int axis = op.x().rank() - static_cast<int>(axes); axis < op.x().rank(); ++axis)
      shape.push_back(op.x().two.dim(axis));
    inputs.push_back(graph.constant(ones(shape)));
  }
  if (Value* const beta = op.optional(2)) inputs.push_back(graph.tensor(*beta));
  graph.define(op.y(), graph.node("LayerNormalization", inputs,
                                  {{"axis", -axes}, {"epsilon", static_cast<float>(op.number("eps"))}}));
}

// gamma and beta [C] as a factor and a term of [N, C, H, W].
std::string scale_channels(Graph& graph, const Op& op, std::string y) {
  constexpr const char* kNodes[] = {"Mul", "Add"};
  for (int i = 1; i <= 2; ++i) {
    if (Value* const value = op.optional(i))
      y = graph.node(kNodes[i - 1], {y, graph.tensor(*value, Layout::nchw)});
  }
  return y;
}

// Opset 17 has only instance norm: the pixels of a group, in one row, form an instance with a single channel.
void lower_group_norm(Graph& graph, const Op& op) {
  if (op.x().rank() != 4) refuse(op, "its input must be [N, H, W, C]");
  const std::int64_t groups = op.integer("groups");
  const std::string x = graph.tensor(op.x(), Layout::nchw);
  const auto filled = [&](float value) {
    return graph.numbers(std::vector<float>(static_cast<std::size_t>(groups), value), {groups});
  };
  const std::vector<Attribute> eps{{"epsilon", static_cast<float>(op.number("eps"))}};
  const std::string rows = graph.node("Reshape", {x, graph.integers({0, groups, -1})});
  const std::string y = graph.node("InstanceNormalization", {rows, filled(1), filled(0)}, eps);
  const std::string images = graph.node("Reshape", {y, graph.sizes(op.x(), Layout::nchw)});
  graph.define(op.y(), scale_channels(graph, op, images), Layout::nchw);
}

void lower_instance_norm(Graph& graph, const Op& op) {
  if (op.x().rank() != 4) refuse(op, "its input must be [N, H, W, C]");
  const std::int64_t channels = op.x().two.dim(3);
  graph.define(op.y(),
               graph.node("InstanceNormalization",
                          {graph.tensor(op.x(), Layout::nchw), or_filled(graph, op.optional(1), 1, channels),
                           or_filled(graph, op.optional(2), 0, channels)},
                          {{"epsilon", static_cast<float>(op.number("eps"))}}),
               Layout::nchw);
}

}  // namespace

const LowerTable& norm_ops() {
  static const LowerTable kTable{{"batch_norm", lower_batch_norm},
                                 {"layer_norm", lower_layer_norm},
                                 {"group_norm", lower_group_norm},
                                 {"instance_norm", lower_instance_norm}};
  return kTable;
}

}  // namespace athanor::nn::onnx
