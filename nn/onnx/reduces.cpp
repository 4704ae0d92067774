#include <algorithm>

#include "nn/onnx/detail/ops.h"

namespace athanor::nn::onnx {
namespace {

/// The axes that an op reduces, whose attribute has a bit for each.
std::vector<std::int64_t> axes_of(const Op& op) {
  std::vector<std::int64_t> axes;
  for (int axis = 0; axis < op.x().rank(); ++axis) {
    if (op.integer("axes") >> axis & 1) axes.push_back(axis);
  }
  return axes;
}

bool holds(const std::vector<std::int64_t>& axes, std::int64_t axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

/// An op over some axes of x, in a layout whose remaining axes have our order.
struct Reduction {
  Layout layout;
  std::string x;
  std::vector<std::int64_t> axes;
  bool keeps;

  Reduction(Graph& graph, const Op& op) {
    const std::vector<std::int64_t> ours = axes_of(op);
    keeps = op.y().rank() == op.x().rank() && op.x().rank() > 0;
    const bool any_order = keeps || holds(ours, 3) || (holds(ours, 1) && holds(ours, 2));
    layout = any_order ? graph.layout_of(op.x()) : Layout::ours;
    x = graph.tensor(op.x(), layout);
    for (const std::int64_t axis : ours) axes.push_back(axis_in(layout, static_cast<int>(axis)));
  }
  Layout result_layout() const { return keeps ? layout : Layout::ours; }
  std::vector<Attribute> keepdims() const { return {{"keepdims", std::int64_t{keeps}}}; }
};

// In opset 17, axes are an input of sums, and an attribute of other reductions.
std::string sum_of(Graph& graph, const Reduction& over, const std::string& x) {
  return graph.node("ReduceSum", {x, graph.integers(over.axes)}, over.keepdims());
}
std::string reduced(Graph& graph, const char* node, const Reduction& over, const std::string& x, bool keeps) {
  return graph.node(node, {x}, {{"axes", over.axes}, {"keepdims", std::int64_t{keeps}}});
}

void lower_sum(Graph& graph, const Op& op) {
  const Reduction over(graph, op);
  graph.define(op.y(), sum_of(graph, over, over.x), over.result_layout());
}

// mean or max
void lower_reduction(Graph& graph, const Op& op) {
  const Reduction over(graph, op);
  const char* const node = op.name == "mean" ? "ReduceMean" : "ReduceMax";
  graph.define(op.y(), reduced(graph, node, over, over.x, over.keeps), over.result_layout());
}

void lower_var(Graph& graph, const Op& op) {
  const Reduction over(graph, op);
  double terms = 1;
  for (const std::int64_t axis : axes_of(op)) {
    if (op.x().batches_in(static_cast<int>(axis)) > 0) refuse(op, "it reduces over the batch");
    terms *= static_cast<double>(op.x().two.dim(static_cast<int>(axis)));
  }
  const double count = terms - op.number("correction");
  const std::string center = reduced(graph, "ReduceMean", over, over.x, true);
  const std::string from = graph.node("Sub", {over.x, center});
  const std::string sum = sum_of(graph, over, graph.node("Mul", {from, from}));
  graph.define(op.y(), scaled(graph, sum, 1 / count), over.result_layout());
}

void lower_argmax(Graph& graph, const Op& op) {
  const Reduction over(graph, op);
  if (over.axes.size() != 1) refuse(op, "it reduces over all axes");
  graph.define(
      op.y(),
      graph.node("ArgMax", {over.x}, {{"axis", over.axes[0]}, {"keepdims", std::int64_t{over.keeps}}}),
      over.result_layout());
}

void lower_softmax(Graph& graph, const Op& op) {
  const Layout layout = graph.layout_of(op.x());
  const std::int64_t axis = axis_in(layout, static_cast<int>(op.integer("axis")));
  const char* const node = op.name == "softmax" ? "Softmax" : "LogSoftmax";
  graph.define(op.y(), graph.node(node, {graph.tensor(op.x(), layout)}, {{"axis", axis}}), layout);
}

void lower_topk(Graph& graph, const Op& op) {
  const std::int64_t axis = op.integer("axis");
  const std::int64_t k = op.y().two.dim(static_cast<int>(axis));
  const std::vector<std::string> results =
      graph.nodes("TopK", {graph.tensor(op.x()), graph.integers({k})},
                  {{"axis", axis}, {"largest", op.integer("largest")}, {"sorted", std::int64_t{1}}}, 2);
  for (int i = 0; i < 2; ++i) graph.define(op.y(i), results[static_cast<std::size_t>(i)]);
}

}  // namespace

const LowerTable& reduce_ops() {
  static const LowerTable kTable{{"sum", lower_sum},
                                 {"mean", lower_reduction},
                                 {"max", lower_reduction},
                                 {"var", lower_var},
                                 {"argmax", lower_argmax},
                                 {"softmax", lower_softmax},
                                 {"log_softmax", lower_softmax},
                                 {"topk", lower_topk}};
  return kTable;
}

}  // namespace athanor::nn::onnx
