#include <algorithm>

#include "kernels/interpolate.h"
#include "kernels/pool.h"
#include "nn/onnx/detail/ops.h"

namespace athanor::nn::onnx {
namespace {

using kernels::PoolAxis;

constexpr int kFilterOrder[] = {0, 3, 1, 2};  // [K, R, S, C] to [K, C, R, S], also for transposed ones

// Convolutions ---------------------------------------------------------------------------------------------

// x, w and the optional bias, with filters [K, R, S, C] in ONNX layout.
std::vector<std::string> filter_inputs(Graph& graph, const Op& op) {
  Value& w = op.x(1);
  std::vector<std::string> inputs{graph.tensor(op.x(), Layout::nchw), w.is_fixed()
                                                                          ? graph.constant(w, kFilterOrder)
                                                                          : graph.tensor(w, Layout::nchw)};
  if (Value* const bias = op.optional(2)) inputs.push_back(graph.tensor(*bias));
  return inputs;
}

std::vector<std::int64_t> kernel_of(const Op& op) {
  const Shape& w = op.x(1).two.shape();
  return {w[1], w[2]};
}

void lower_convolution(Graph& graph, const Op& op) {
  const bool transposed = op.name == "conv_transpose2d";
  std::vector<Attribute> attributes{{"dilations", op.integers("dilation")},
                                    {"group", op.integer("groups")},
                                    {"kernel_shape", kernel_of(op)}};
  if (transposed) attributes.push_back({"output_padding", op.integers("output_padding")});
  attributes.push_back({"pads", twice(op.integers("padding"))});
  attributes.push_back({"strides", op.integers("stride")});
  const std::string y =
      graph.node(transposed ? "ConvTranspose" : "Conv", filter_inputs(graph, op), attributes);
  graph.define(op.y(), transposed ? y : activated(graph, op.integer("activation"), y), Layout::nchw);
}

// Pools ----------------------------------------------------------------------------------------------------

struct PoolSizes {
  std::vector<std::int64_t> window, stride, padding, dilation, behind;
};

// Chooses the padding at the end to match the op's number of results: more than `padding` if the op rounds
// up.
PoolSizes pool_sizes(const Op& op) {
  PoolSizes sizes{
      op.integers("window"), op.integers("stride"), op.integers("padding"), op.integers("dilation"), {}};
  for (std::size_t i = 0; i < 2; ++i) {
    const int axis = static_cast<int>(i) + 1;
    const std::int64_t extent = sizes.dilation[i] * (sizes.window[i] - 1) + 1;
    const std::int64_t covered = (op.y().two.dim(axis) - 1) * sizes.stride[i] + extent;
    sizes.behind.push_back(std::max(sizes.padding[i], covered - op.x().two.dim(axis) - sizes.padding[i]));
  }
  return sizes;
}

std::vector<Attribute> pool_attributes(const PoolSizes& sizes) {
  std::vector<std::int64_t> pads = sizes.padding;
  pads.insert(pads.end(), sizes.behind.begin(), sizes.behind.end());
  return {{"kernel_shape", sizes.window}, {"pads", pads}, {"strides", sizes.stride}};
}

void lower_max_pool2d(Graph& graph, const Op& op) {
  const PoolSizes sizes = pool_sizes(op);
  std::vector<Attribute> attributes = pool_attributes(sizes);
  attributes.push_back({"dilations", sizes.dilation});
  graph.define(op.y(), graph.node("MaxPool", {graph.tensor(op.x(), Layout::nchw)}, attributes), Layout::nchw);
}

void lower_avg_pool2d(Graph& graph, const Op& op) {
  const PoolSizes sizes = pool_sizes(op);
  const bool counts = op.integer("count_padding") != 0;
  if (counts && sizes.behind != sizes.padding)
    refuse(op, "it uses ceil_mode and counts padding; use count_padding = false");
  std::vector<Attribute> attributes = pool_attributes(sizes);
  attributes.push_back({"count_include_pad", std::int64_t{counts}});
  graph.define(op.y(), graph.node("AveragePool", {graph.tensor(op.x(), Layout::nchw)}, attributes),
               Layout::nchw);
}

// [outputs, inputs]: the weight of each input in each result along an axis.
std::vector<float> shares(std::int64_t inputs, std::int64_t outputs, bool transposed) {
  const PoolAxis axis{inputs, outputs, 1, 1, 0, true};
  std::vector<float> matrix(static_cast<std::size_t>(inputs * outputs));
  for (std::int64_t i = 0; i < outputs; ++i) {
    const std::int64_t begin = axis.start(i), end = axis.end(i);
    for (std::int64_t j = begin; j < end; ++j)
      matrix[static_cast<std::size_t>(transposed ? j * outputs + i : i * inputs + j)] =
          1 / static_cast<float>(end - begin);
  }
  return matrix;
}

// Equal windows become an average pool, others a matrix product from each side.
void lower_adaptive_avg_pool2d(Graph& graph, const Op& op) {
  const std::int64_t h = op.x().two.dim(1), w = op.x().two.dim(2), p = op.y().two.dim(1),
                     q = op.y().two.dim(2);
  if (h == p && w == q) return graph.alias(op.y(), op.x());
  std::string y = graph.tensor(op.x(), Layout::nchw);
  if (p == 1 && q == 1) {
    y = graph.node("GlobalAveragePool", {y});
  } else if (h % p == 0 && w % q == 0) {
    const std::vector<std::int64_t> window{h / p, w / q};
    y = graph.node("AveragePool", {y}, {{"kernel_shape", window}, {"strides", window}});
  } else {
    y = graph.node("MatMul", {graph.numbers(shares(h, p, false), {p, h}), y});
    y = graph.node("MatMul", {y, graph.numbers(shares(w, q, true), {w, q})});
  }
  graph.define(op.y(), y, Layout::nchw);
}

// Interpolation --------------------------------------------------------------------------------------------

// Whether a size times its scale gives the result's size in any reader's rounding: exactly, or far from an
// integer.
bool is_certain(std::int64_t in, float scale, std::int64_t out) {
  const double beyond = static_cast<double>(in) * scale - static_cast<double>(out);
  return beyond == 0 || (beyond > 1e-3 && beyond < 1 - 1e-3);
}

// Uses scales if they certainly give the result's size, else the size.
void lower_interpolate(Graph& graph, const Op& op) {
  const std::vector<double> steps = op.numbers("scale");  // of the input, per pixel of the result
  const bool align = op.integer("align_corners") != 0;
  std::vector<float> scales{1, 1};
  bool certain = true;
  for (int i = 0; i < 2; ++i) {
    const std::int64_t in = op.x().two.dim(1 + i), out = op.y().two.dim(1 + i);
    scales.push_back(align ? static_cast<float>(out) / static_cast<float>(in)
                           : static_cast<float>(1 / steps[static_cast<std::size_t>(i)]));
    certain = certain && is_certain(in, scales.back(), out);
  }
  const bool nearest = static_cast<Interpolation>(op.integer("mode")) == Interpolation::nearest;
  std::vector<Attribute> attributes{{"coordinate_transformation_mode", std::string(nearest ? "asymmetric"
                                                                                   : align ? "align_corners"
                                                                                           : "half_pixel")},
                                    {"mode", std::string(nearest ? "nearest" : "linear")}};
  if (nearest) attributes.push_back({"nearest_mode", std::string("floor")});
  std::vector<std::string> inputs{graph.tensor(op.x(), Layout::nchw), ""};
  if (certain) {
    inputs.push_back(graph.numbers(scales, {4}));
  } else {
    inputs.insert(inputs.end(), {"", graph.sizes(op.y(), Layout::nchw)});
  }
  graph.define(op.y(), graph.node("Resize", inputs, attributes), Layout::nchw);
}

}  // namespace

const LowerTable& image_ops() {
  static const LowerTable kTable{{"conv2d", lower_convolution},
                                 {"conv_transpose2d", lower_convolution},
                                 {"max_pool2d", lower_max_pool2d},
                                 {"avg_pool2d", lower_avg_pool2d},
                                 {"adaptive_avg_pool2d", lower_adaptive_avg_pool2d},
                                 {"interpolate", lower_interpolate}};
  return kTable;
}

}  // namespace athanor::nn::onnx
