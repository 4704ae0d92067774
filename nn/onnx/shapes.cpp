#include <cstdint>
#include <limits>

#include "nn/onnx/detail/ops.h"

namespace athanor::nn::onnx {
namespace {

// Views ----------------------------------------------------------------------------------------------------

// Sizes of Reshape: 0 is the input's own, -1 the remaining size.
std::string reshape_sizes(Graph& graph, const Value& x, const Value& y) {
  std::vector<std::int64_t> sizes;
  int left = 0;
  for (int axis = 0; axis < y.rank(); ++axis) {
    const bool own =
        axis < x.rank() && x.two.dim(axis) == y.two.dim(axis) && x.three.dim(axis) == y.three.dim(axis);
    const bool grows = y.batches_in(axis) > 0;
    left += grows && !own;
    sizes.push_back(!grows ? y.two.dim(axis) : own ? 0 : -1);
  }
  return left > 1 ? graph.sizes(y) : graph.integers(sizes);
}

// [N, H, W, C] to [N, H W C]
bool is_flattened(const Value& x, const Value& y) {
  return x.rank() == 4 && y.rank() == 2 && x.batches_in(0) == 1 && y.batches_in(0) == 1 && x.varies;
}

void lower_reshape(Graph& graph, const Op& op) {
  Value &x = op.x(), &y = op.y();
  if (is_flattened(x, y)) return graph.define_flattened(y, x);
  const std::string from = graph.in_our_order(x);
  const bool flat =
      y.rank() == 2 && x.rank() > 2 && x.two.dim(0) == y.two.dim(0) && x.three.dim(0) == y.three.dim(0);
  graph.define(y, flat ? graph.node("Flatten", {from}, {{"axis", std::int64_t{1}}})
                       : graph.node("Reshape", {from, reshape_sizes(graph, x, y)}));
}

void lower_permute(Graph& graph, const Op& op) {
  const Layout layout = graph.layout_of(op.x());
  std::vector<std::int64_t> order;
  for (const std::int64_t axis : op.integers("order"))
    order.push_back(axis_in(layout, static_cast<int>(axis)));
  graph.define(op.y(), graph.node("Transpose", {graph.tensor(op.x(), layout)}, {{"perm", order}}));
}

// Squeeze or Unsqueeze.
void lower_squeezes(Graph& graph, const Op& op) {
  const char* const node = op.name == "squeeze" ? "Squeeze" : "Unsqueeze";
  graph.define(op.y(), graph.node(node, {graph.tensor(op.x()), graph.integers({op.integer("axis")})}));
}

void lower_expand(Graph& graph, const Op& op) {
  graph.define(op.y(), graph.node("Expand", {graph.tensor(op.x()), graph.sizes(op.y())}));
}

void lower_narrow(Graph& graph, const Op& op) {
  const Layout layout = graph.layout_of(op.x());
  const int ours = static_cast<int>(op.integer("axis"));
  const std::int64_t axis = axis_in(layout, ours), start = op.integer("start");
  const auto ends = [&](const Tensor& x, const Tensor& y) { return start + y.dim(ours) == x.dim(ours); };
  const bool to_the_end = ends(op.x().two, op.y().two) && ends(op.x().three, op.y().three);
  if (!to_the_end && op.y().batches_in(ours) > 0) refuse(op, "it takes a slice of the batch");
  const std::int64_t end =
      to_the_end ? std::numeric_limits<std::int64_t>::max() : start + op.y().two.dim(ours);
  graph.define(op.y(),
               graph.node("Slice", {graph.tensor(op.x(), layout), graph.integers({start}),
                                    graph.integers({end}), graph.integers({axis})}),
               layout);
}

void lower_select(Graph& graph, const Op& op) {
  graph.define(op.y(), graph.node("Gather", {graph.tensor(op.x()), graph.integer(op.integer("index"))},
                                  {{"axis", op.integer("axis")}}));
}

// Copies ---------------------------------------------------------------------------------------------------

void lower_clone(Graph& graph, const Op& op) {
  graph.alias(op.y(), op.x());
}

void lower_cast(Graph& graph, const Op& op) {
  const Layout layout = graph.layout_of(op.x());
  graph.define(op.y(),
               graph.node("Cast", {graph.tensor(op.x(), layout)}, {{"to", data_type(op.y().two.dtype())}}),
               layout);
}

void lower_cat(Graph& graph, const Op& op) {
  const Operands operands = aligned(graph, op.inputs);
  const std::int64_t axis = axis_in(operands.layout, static_cast<int>(op.integer("axis")));
  graph.define(op.y(), graph.node("Concat", operands.names, {{"axis", axis}}), operands.layout);
}

void lower_stack(Graph& graph, const Op& op) {
  const std::int64_t axis = op.integer("axis");
  std::vector<std::string> parts;
  for (Value* value : op.inputs)
    parts.push_back(graph.node("Unsqueeze", {graph.tensor(*value), graph.integers({axis})}));
  graph.define(op.y(), graph.node("Concat", parts, {{"axis", axis}}));
}

void lower_index_select(Graph& graph, const Op& op) {
  graph.define(op.y(), graph.node("Gather", {graph.tensor(op.x()), graph.tensor(op.x(1))},
                                  {{"axis", op.integer("axis")}}));
}

void lower_gather(Graph& graph, const Op& op) {
  // Only some readers accept a GatherElements index that is smaller along the other axes.
  const auto axis = static_cast<int>(op.integer("axis"));
  for (int i = 0; i < op.x().rank(); ++i) {
    if (i != axis && op.x(1).two.dim(i) != op.x().two.dim(i))
      refuse(op, "its index is smaller than its input");
  }
  graph.define(op.y(), graph.node("GatherElements", {graph.tensor(op.x()), graph.tensor(op.x(1))},
                                  {{"axis", std::int64_t{axis}}}));
}

}  // namespace

const LowerTable& shape_ops() {
  static const LowerTable kTable{{"reshape", lower_reshape},  {"permute", lower_permute},
                                 {"squeeze", lower_squeezes}, {"unsqueeze", lower_squeezes},
                                 {"expand", lower_expand},    {"narrow", lower_narrow},
                                 {"select", lower_select},    {"clone", lower_clone},
                                 {"cast", lower_cast},        {"cat", lower_cat},
                                 {"stack", lower_stack},      {"index_select", lower_index_select},
                                 {"gather", lower_gather}};
  return kTable;
}

}  // namespace athanor::nn::onnx
