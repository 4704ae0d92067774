#include "kernels/cuda/cudnn_conv.h"

#include <array>
#include <optional>

#include "kernels/hash.h"

namespace athanor::cudnn {
namespace {

/// Strides, in cuDNN's order N C H W, of dense [n, h, w, c].
Strides channels_last(std::int64_t h, std::int64_t w, std::int64_t c) {
  return {h * w * c, 1, w * c, c};
}

}  // namespace

std::size_t ConvSignature::hash() const {
  kernels::HashOf hash;
  hash.add(n, h, w, c, k, r, s, p, q, groups);
  for (int axis = 0; axis < 2; ++axis)
    hash.add(window.stride[axis], window.padding[axis], window.dilation[axis]);
  for (const auto bytes : alignment) hash.add(bytes);
  hash.add(rules.workspace_bytes, pass, dtype, bias, relu, sums, norm, shortcut, others, after, out,
           accumulate, rules.tf32, rules.deterministic);
  return static_cast<std::size_t>(hash.value());
}

std::string ConvSignature::str() const {
  std::string text = fmt::format(
      "conv2d {} {}{}{}{}{} x[{},{},{},{}] w[{},{},{},{}] y[{},{}] stride {},{} padding {},{} dilation {},{} "
      "groups {} alignment {},{},{},{} workspace {}{}{}",
      cuda::kernel_name(pass) + sizeof "conv2d", dtype, bias ? " bias" : "", relu ? " relu" : "",
      sums ? " sums" : "", norm ? " norm" : "", n, h, w, c, k, r, s, c / groups, p, q, window.stride[0],
      window.stride[1], window.padding[0], window.padding[1], window.dilation[0], window.dilation[1], groups,
      alignment[0], alignment[1], alignment[2], alignment[3], rules.workspace_bytes,
      rules.tf32 ? " tf32" : "", rules.deterministic ? " deterministic" : "");
  if (shortcut != Shortcut::none) text += shortcut == Shortcut::norm ? " two norms" : " shortcut";
  if (others) text += " others";
  if (after != Activation::none) text += fmt::format(" then activation {}", static_cast<int>(after));
  if (out != dtype) text += fmt::format(" to {}", out);
  if (accumulate) text += " accumulate";
  return text;
}

ConvSignature conv_signature(Graph::Pass pass, DType dtype, const Shape& x, const Shape& w, const Shape& y,
                             bool bias, const Conv2dParams& params) {
  ConvSignature z;
  z.pass = pass;
  z.dtype = z.out = dtype;
  z.bias = bias && pass == Graph::Pass::forward;
  z.relu = z.bias && params.activation == Activation::relu;
  if (pass == Graph::Pass::forward && !z.relu) z.after = params.activation;
  z.n = x[0], z.h = x[1], z.w = x[2], z.c = x[3];
  z.k = w[0], z.r = w[1], z.s = w[2];
  z.p = y[1], z.q = y[2];
  z.groups = params.groups;
  for (int axis = 0; axis < 2; ++axis) {
    z.window.stride[axis] = params.stride[axis];
    z.window.padding[axis] = params.padding[axis];
    z.window.dilation[axis] = params.dilation[axis];
  }
  return z;
}

namespace {

/// What the tensors of a graph for a signature look like.
struct Layouts {
  const ConvSignature& z;

  Graph::Id x(Graph& graph) const { return graph.tensor(image(), strides(), z.dtype, z.alignment[0]); }
  Graph::Id w(Graph& graph) const {
    const std::int64_t group_c = z.c / z.groups;
    return graph.tensor({z.k, group_c, z.r, z.s}, channels_last(z.r, z.s, group_c), z.dtype, z.alignment[1]);
  }
  Graph::Id y(Graph& graph) const {
    return graph.tensor({z.n, z.k, z.p, z.q}, channels_last(z.p, z.q, z.k), z.dtype, z.alignment[3]);
  }
  /// Between two operations, shaped like x or like y.
  Graph::Id like_x(Graph& graph) const { return graph.intermediate(image(), strides()); }
  Graph::Id like_y(Graph& graph) const {
    return graph.intermediate({z.n, z.k, z.p, z.q}, channels_last(z.p, z.q, z.k));
  }
  /// A number for each of x's, or of y's channels.
  static Graph::Id vector(Graph& graph, std::int64_t channels, DType dtype, std::int64_t alignment = 16) {
    return graph.tensor({1, channels, 1, 1}, {channels, 1, channels, channels}, dtype, alignment);
  }

 private:
  Shape image() const { return {z.n, z.c, z.h, z.w}; }
  Strides strides() const { return channels_last(z.h, z.w, z.c); }
};

/// x scale + shift, by vectors of the graph.
Graph::Id scaled(Graph& graph, const Layouts& like, Graph::Id x) {
  const auto vector = [&] { return Layouts::vector(graph, like.z.c, like.z.dtype); };
  const Graph::Id scale = vector(), shift = vector();
  const Graph::Id product = like.like_x(graph), sum = like.like_x(graph);
  graph.pointwise(CUDNN_POINTWISE_MUL, x, scale, product);
  graph.pointwise(CUDNN_POINTWISE_ADD, product, shift, sum);
  return sum;
}
/// The result of a norm with ReLU over x, as scale and shift give it.
Graph::Id normalised(Graph& graph, const Layouts& like, Graph::Id x) {
  using Shortcut = ConvSignature::Shortcut;
  const Shortcut shortcut = like.z.shortcut;
  Graph::Id before_relu = scaled(graph, like, x);
  if (shortcut != Shortcut::none) {
    const Graph::Id plain = like.x(graph),
                    added = shortcut == Shortcut::norm ? scaled(graph, like, plain) : plain,
                    sum = like.like_x(graph);
    graph.pointwise(CUDNN_POINTWISE_ADD, before_relu, added, sum);
    before_relu = sum;
  }
  const Graph::Id y = shortcut != Shortcut::none ? like.x(graph) : like.like_x(graph);
  graph.pointwise(CUDNN_POINTWISE_RELU_FWD, before_relu, std::nullopt, y);
  return y;
}

/// A norm in a graph: its x, and a number for each channel of the rest.
struct GraphNorm {
  Graph::Id x, mean, inverse, gamma, beta;

  GraphNorm(Graph& graph, const Layouts& like) : x(like.x(graph)) {
    for (Graph::Id* const id : {&mean, &inverse, &gamma, &beta})
      *id = Layouts::vector(graph, like.z.c, DType::f32);
  }
  Graph::Id result(Graph& graph, const Layouts& like) const {
    const Graph::Id centred = like.like_x(graph), unit = like.like_x(graph), scaled = like.like_x(graph),
                    y = like.like_x(graph);
    graph.pointwise(CUDNN_POINTWISE_ADD, x, mean, centred, -1);
    graph.pointwise(CUDNN_POINTWISE_MUL, centred, inverse, unit);
    graph.pointwise(CUDNN_POINTWISE_MUL, unit, gamma, scaled);
    graph.pointwise(CUDNN_POINTWISE_ADD, scaled, beta, y);
    return y;
  }
  void sums(Graph& graph, const Layouts& like, Graph::Id g) const {
    std::array<Graph::Id, 5> found;  // dbeta, dgamma, and what is not used
    for (Graph::Id& id : found) id = Layouts::vector(graph, like.z.c, DType::f32);
    graph.norm_gradient_sums({x, g, mean, inverse, gamma, found[1], found[0], found[2], found[3], found[4]});
  }
};

/// dy of a norm with ReLU, by the convolution behind it, to the gradient before the ReLU and its sums. It has
/// to be built exactly like this: other forms of the same formula have no engine.
void add_gradient_behind_norm(Graph& graph, const ConvSignature& z, const Layouts& like, Graph::Id g,
                              Graph::Id w, Graph::Id y) {
  const auto sum = [&](Graph::Id a, Graph::Id b) {
    const Graph::Id both = like.like_x(graph);
    graph.pointwise(CUDNN_POINTWISE_ADD, a, b, both);
    return both;
  };
  const Graph::Id by_this = like.like_x(graph), by_others = z.others ? like.x(graph) : 0;
  graph.convolution(z.pass, z.window, by_this, w, y);
  const Graph::Id dy = z.others ? sum(by_this, by_others) : by_this;
  const GraphNorm norm(graph, like);
  std::optional<GraphNorm> other;
  if (z.shortcut == ConvSignature::Shortcut::norm) other.emplace(graph, like);
  Graph::Id before_relu = norm.result(graph, like);
  if (other) before_relu = sum(before_relu, other->result(graph, like));
  if (z.shortcut == ConvSignature::Shortcut::tensor) before_relu = sum(before_relu, like.x(graph));
  graph.relu_gradient(dy, before_relu, g);
  norm.sums(graph, like, g);
  if (other) other->sums(graph, like, g);
}

}  // namespace

Graph conv_graph(const ConvSignature& z) {
  Graph graph;
  const Layouts like{z};
  Graph::Id x = like.x(graph);
  const Graph::Id w = like.w(graph);
  // In the dtype of x: with an f32 bias cuDNN has engines to be compiled at run time alone.
  const Graph::Id bias = z.bias ? Layouts::vector(graph, z.k, z.dtype, z.alignment[2]) : 0;
  const Graph::Id y = like.y(graph);
  if (z.norm && z.pass == Graph::Pass::backward_data) {
    add_gradient_behind_norm(graph, z, like, x, w, y);
    graph.finalize();
    return graph;
  }
  if (z.norm) x = normalised(graph, like, x);

  Graph::Id product = z.bias || z.relu ? like.like_y(graph) : y;
  const bool adds = z.pass == Graph::Pass::backward_data && z.accumulate;
  graph.convolution(z.pass, z.window, x, w, product, adds);
  if (z.bias) {
    const Graph::Id sum = z.relu ? like.like_y(graph) : y;
    graph.pointwise(CUDNN_POINTWISE_ADD, product, bias, sum);
    product = sum;
  }
  if (z.relu) graph.pointwise(CUDNN_POINTWISE_RELU_FWD, product, std::nullopt, y);
  if (z.sums) {
    const Graph::Id sum = Layouts::vector(graph, z.k, DType::f32),
                    squares = Layouts::vector(graph, z.k, DType::f32);
    graph.channel_sums(y, sum, squares);
  }
  graph.finalize();
  return graph;
}

cuda::Found<Plan> find_conv_plans(const ConvSignature& signature, const Target& target, std::size_t most) {
  if (signature.dtype == DType::bf16 && target.properties && target.properties->sm() < 80) return {};
  // Asked for a relu without a bias, cuDNN takes a second to say that it has none.
  if (signature.relu && !signature.bias) return {};
  return find_plans(conv_graph(signature), target, signature.dtype, signature.rules, most);
}

}  // namespace athanor::cudnn
