#include "kernels/cuda/cudnn_norm.h"

#include "kernels/hash.h"

namespace athanor::cudnn {
namespace {

/// Makes the tensors of one signature.
struct Tensors {
  const NormSignature& z;
  Graph& graph;
  Shape image{z.n, z.c, z.h, z.w};
  Strides strides{z.h * z.w * z.c, 1, z.w* z.c, z.c};

  Graph::Id images() { return graph.tensor(image, strides, z.dtype, z.alignment); }
  Graph::Id vector() { return graph.tensor({1, z.c, 1, 1}, {z.c, 1, z.c, z.c}, DType::f32, z.alignment); }
  Graph::Id between() { return graph.intermediate(image, strides); }
};

void add_forward(const NormSignature& z, Graph& graph) {
  Tensors make{z, graph};
  Graph::NormForward t{};
  t.x = make.images();
  t.scale = make.vector(), t.bias = make.vector();
  t.epsilon = graph.scalar(), t.momentum = graph.scalar();
  t.running_mean = make.vector(), t.running_var = make.vector();
  t.mean = make.vector(), t.inverse_deviation = make.vector();
  t.new_running_mean = make.vector(), t.new_running_var = make.vector();
  const Graph::Id residual = z.residual ? make.images() : 0;
  const Graph::Id y = make.images();

  t.y = z.residual || z.relu ? make.between() : y;
  graph.batch_norm_forward(t);
  Graph::Id last = t.y;
  if (z.residual) {
    const Graph::Id sum = z.relu ? make.between() : y;
    graph.pointwise(CUDNN_POINTWISE_ADD, last, residual, sum);
    last = sum;
  }
  if (z.relu) graph.pointwise(CUDNN_POINTWISE_RELU_FWD, last, std::nullopt, y);
}

void add_backward(const NormSignature& z, Graph& graph) {
  Tensors make{z, graph};
  Graph::NormBackward t{};
  t.dy = make.images(), t.x = make.images();
  t.scale = make.vector(), t.mean = make.vector(), t.inverse_deviation = make.vector();
  t.dscale = make.vector(), t.dbias = make.vector();
  t.dx = make.images();
  graph.batch_norm_backward(t);
}

}  // namespace

std::size_t NormSignature::hash() const {
  kernels::HashOf hash;
  hash.add(n, h, w, c, alignment, rules.workspace_bytes, pass, dtype, residual, relu, rules.tf32,
           rules.deterministic, rules.runtime_compiled);
  return static_cast<std::size_t>(hash.value());
}

std::string NormSignature::str() const {
  return fmt::format("batch_norm {} {}{}{} x[{},{},{},{}] alignment {} workspace {}{}{}{}",
                     pass == Pass::forward ? "forward" : "backward", dtype, residual ? " residual" : "",
                     relu ? " relu" : "", n, h, w, c, alignment, rules.workspace_bytes,
                     rules.tf32 ? " tf32" : "", rules.deterministic ? " deterministic" : "",
                     rules.runtime_compiled ? " runtime_compiled" : "");
}

Graph norm_graph(const NormSignature& signature) {
  Graph graph;
  if (signature.pass == NormSignature::Pass::forward) {
    add_forward(signature, graph);
  } else {
    add_backward(signature, graph);
  }
  graph.finalize();
  return graph;
}

cuda::Found<Plan> find_norm_plans(const NormSignature& signature, const DeviceProperties& device,
                                  std::size_t most) {
  if (signature.dtype == DType::bf16 && device.sm() < 80) return {};
  return find_plans(norm_graph(signature), device, signature.dtype, signature.rules, most);
}

}  // namespace athanor::cudnn
