#include "nn/onnx/detail/ops.h"

namespace athanor::nn::onnx {
namespace {

// x and w. Images left in nchw by convolutions are flattened in that order, and the columns of w are permuted
// to match.
std::vector<std::string> matrices(Graph& graph, Value& x, Value& w) {
  Value* const images = w.is_fixed() ? graph.flattened_images(x) : nullptr;
  if (!images) return {graph.tensor(x), graph.tensor(w)};
  const Shape& shape = images->two.shape();
  return {graph.node("Flatten", {graph.tensor(*images, Layout::nchw)}, {{"axis", std::int64_t{1}}}),
          graph.constant_of_nchw(w, {shape[1], shape[2], shape[3]})};
}

// A matrix becomes Gemm; more axes become MatMul with the transposed weight.
void lower_linear(Graph& graph, const Op& op) {
  Value &x = op.x(), &w = op.x(1), *const bias = op.optional(2);
  std::string y;
  if (x.rank() == 2) {
    std::vector<std::string> inputs = matrices(graph, x, w);
    if (bias) inputs.push_back(graph.tensor(*bias));
    y = graph.node("Gemm", inputs, {{"transB", std::int64_t{1}}});
  } else {
    constexpr int kTurned[] = {1, 0};
    const std::vector<std::int64_t> order{1, 0};
    const std::string turned = w.is_fixed() ? graph.constant(w, kTurned)
                                            : graph.node("Transpose", {graph.tensor(w)}, {{"perm", order}});
    y = graph.node("MatMul", {graph.tensor(x), turned});
    if (bias) y = graph.node("Add", {y, graph.tensor(*bias)});
  }
  graph.define(op.y(), activated(graph, op.integer("activation"), y));
}

void lower_matmul(Graph& graph, const Op& op) {
  graph.define(op.y(), graph.node("MatMul", {graph.tensor(op.x()), graph.tensor(op.x(1))}));
}

}  // namespace

const LowerTable& product_ops() {
  static const LowerTable kTable{{"linear", lower_linear}, {"matmul", lower_matmul}};
  return kTable;
}

}  // namespace athanor::nn::onnx
