#include "kernels/cuda/cudnn_conv.h"

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
  hash.add(rules.workspace_bytes, pass, dtype, bias, relu, sums, after, out, accumulate, rules.tf32,
           rules.deterministic);
  return static_cast<std::size_t>(hash.value());
}

std::string ConvSignature::str() const {
  std::string text = fmt::format(
      "conv2d {} {}{}{}{} x[{},{},{},{}] w[{},{},{},{}] y[{},{}] stride {},{} padding {},{} dilation {},{} "
      "groups {} alignment {},{},{},{} workspace {}{}{}",
      cuda::kernel_name(pass) + sizeof "conv2d", dtype, bias ? " bias" : "", relu ? " relu" : "",
      sums ? " sums" : "", n, h, w, c, k, r, s, c / groups, p, q, window.stride[0], window.stride[1],
      window.padding[0], window.padding[1], window.dilation[0], window.dilation[1], groups, alignment[0],
      alignment[1], alignment[2], alignment[3], rules.workspace_bytes, rules.tf32 ? " tf32" : "",
      rules.deterministic ? " deterministic" : "");
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

Graph conv_graph(const ConvSignature& z) {
  Graph graph;
  const std::int64_t group_c = z.c / z.groups;
  const Shape image{z.n, z.k, z.p, z.q};
  const Strides image_strides = channels_last(z.p, z.q, z.k);
  const Graph::Id x =
      graph.tensor({z.n, z.c, z.h, z.w}, channels_last(z.h, z.w, z.c), z.dtype, z.alignment[0]);
  const Graph::Id w =
      graph.tensor({z.k, group_c, z.r, z.s}, channels_last(z.r, z.s, group_c), z.dtype, z.alignment[1]);
  // In the dtype of x: with an f32 bias cuDNN has engines to be compiled at run time alone.
  const Graph::Id bias =
      z.bias ? graph.tensor({1, z.k, 1, 1}, {z.k, 1, z.k, z.k}, z.dtype, z.alignment[2]) : 0;
  const Graph::Id y = graph.tensor(image, image_strides, z.dtype, z.alignment[3]);

  Graph::Id product = z.bias || z.relu ? graph.intermediate(image, image_strides) : y;
  const bool adds = z.pass == Graph::Pass::backward_data && z.accumulate;
  graph.convolution(z.pass, z.window, x, w, product, adds);
  if (z.bias) {
    const Graph::Id sum = z.relu ? graph.intermediate(image, image_strides) : y;
    graph.pointwise(CUDNN_POINTWISE_ADD, product, bias, sum);
    product = sum;
  }
  if (z.relu) graph.pointwise(CUDNN_POINTWISE_RELU_FWD, product, std::nullopt, y);
  if (z.sums) {
    const auto of_channels = [&] { return graph.tensor({1, z.k, 1, 1}, {z.k, 1, z.k, z.k}, DType::f32, 16); };
    const Graph::Id sum = of_channels(), squares = of_channels();
    graph.channel_sums(y, sum, squares);
  }
  graph.finalize();
  return graph;
}

cuda::Found<Plan> find_conv_plans(const ConvSignature& signature, const DeviceProperties& device,
                                  std::size_t most) {
  if (signature.dtype == DType::bf16 && device.sm() < 80) return {};
  // Asked for a relu without a bias, cuDNN takes a second to say that it has none.
  if (signature.relu && !signature.bias) return {};
  return find_plans(conv_graph(signature), device, signature.dtype, signature.rules, most);
}

}  // namespace athanor::cudnn
