#include "examples/athanor_tool/ops.h"

#include <optional>

#include "athanor.h"

namespace athanor::tool {
namespace {

Activation activation(Arguments& a) {
  return a.choice<Activation>("activation", {{"none", Activation::none},
#define ATH_CHOICE(Op, name) {#name, Activation::name},
                                             ATH_ACTIVATIONS(ATH_CHOICE)
#undef ATH_CHOICE
                                            });
}

Reduction reduction(Arguments& a) {
  return a.choice<Reduction>("reduction",
                             {{"mean", Reduction::mean}, {"sum", Reduction::sum}, {"none", Reduction::none}});
}

template <Tensor (*F)(const Tensor&)> Tensor unary(Arguments& a) {
  return F(a.in("x"));
}

template <Tensor (*F)(const Tensor&, const Tensor&)> Tensor binary(Arguments& a) {
  const Tensor left = a.in("a");
  return F(left, a.in("b"));
}

// An op on two tensors, or on one and the attribute `number`.
using OfNumber = Tensor (*)(const Tensor&, double);
template <Tensor (*F)(const Tensor&, const Tensor&), OfNumber G> Tensor with_number(Arguments& a) {
  const Tensor left = a.in("a");
  return a.given("number") ? G(left, a.attribute("number", 0.0)) : F(left, a.in("b"));
}

template <Tensor (*F)(const Tensor&, std::span<const int>, bool)> Tensor over_axes(Arguments& a) {
  const Tensor x = a.in("x");
  return F(x, a.attribute("axes", std::vector<int>{}), a.attribute("keepdim", false));
}

// Along an axis, or over all elements if none is given.
template <Tensor (*F)(const Tensor&, int, bool), Tensor (*OfAll)(const Tensor&)>
Tensor over_axis(Arguments& a) {
  const Tensor x = a.in("x");
  return a.given("axis") ? F(x, a.attribute("axis", -1), a.attribute("keepdim", false)) : OfAll(x);
}

std::optional<double> bound(Arguments& a, const char* name) {
  return a.given(name) ? std::optional(a.attribute(name, 0.0)) : std::nullopt;
}

Tensor run_topk(Arguments& a) {
  const Tensor x = a.in("x");
  const std::int64_t k = a.attribute<std::int64_t>("k", 1);
  const bool largest = a.attribute("largest", true);
  const TopK found = topk(x, k, a.attribute("axis", -1), largest);
  return a.choice<bool>("result", {{"values", true}, {"indices", false}}) ? found.values : found.indices;
}

Tensor run_conv2d(Arguments& a) {
  Conv2dParams params;
  a.pair("stride", params.stride);
  a.pair("padding", params.padding);
  params.same_padding = a.attribute("same_padding", params.same_padding);
  a.pair("dilation", params.dilation);
  params.groups = a.attribute("groups", params.groups);
  params.activation = activation(a);
  params.impl = a.impl<ConvImpl>();
  const Tensor x = a.in("x"), w = a.in("w");
  return conv2d(x, w, a.optional("bias"), params);
}

Tensor run_conv_transpose2d(Arguments& a) {
  ConvTranspose2dParams params;
  a.pair("stride", params.stride);
  a.pair("padding", params.padding);
  a.pair("output_padding", params.output_padding);
  a.pair("dilation", params.dilation);
  params.groups = a.attribute("groups", params.groups);
  params.impl = a.impl<ConvImpl>();
  const Tensor x = a.in("x"), w = a.in("w");
  return conv_transpose2d(x, w, a.optional("bias"), params);
}

Tensor run_batch_norm(Arguments& a) {
  BatchNormParams params;
  params.eps = a.attribute("eps", params.eps);
  params.momentum = a.attribute("momentum", params.momentum);
  params.activation = activation(a);
  const Tensor x = a.in("x"), gamma = a.optional("gamma"), beta = a.optional("beta");
  const Tensor mean = a.buffer("running_mean"), var = a.buffer("running_var");
  return batch_norm(x, gamma, beta, mean, var, a.attribute("training", true), params, a.optional("residual"));
}

Tensor run_layer_norm(Arguments& a) {
  const Tensor x = a.in("x"), gamma = a.optional("gamma"), beta = a.optional("beta");
  return layer_norm(x, gamma, beta, a.attribute("eps", 1e-5), a.attribute("axes", 1));
}

Tensor run_group_norm(Arguments& a) {
  const Tensor x = a.in("x"), gamma = a.optional("gamma"), beta = a.optional("beta");
  return group_norm(x, a.attribute<std::int64_t>("groups", 1), gamma, beta, a.attribute("eps", 1e-5));
}

Tensor run_instance_norm(Arguments& a) {
  const Tensor x = a.in("x"), gamma = a.optional("gamma"), beta = a.optional("beta");
  return instance_norm(x, gamma, beta, a.attribute("eps", 1e-5));
}

Pool2dParams pool_params(Arguments& a) {
  Pool2dParams params;
  a.pair("window", params.window);
  a.pair("stride", params.stride);
  a.pair("padding", params.padding);
  params.ceil_mode = a.attribute("ceil_mode", params.ceil_mode);
  a.pair("dilation", params.dilation);
  params.count_padding = a.attribute("count_padding", params.count_padding);
  return params;
}

Tensor run_avg_pool2d(Arguments& a) {
  const Pool2dParams params = pool_params(a);
  return avg_pool2d(a.in("x"), params);
}

Tensor run_max_pool2d(Arguments& a) {
  const Pool2dParams params = pool_params(a);
  const bool values = a.choice<bool>("result", {{"values", true}, {"indices", false}});
  const Tensor x = a.in("x");
  return values ? max_pool2d(x, params) : max_pool2d_with_indices(x, params).indices;
}

Tensor run_interpolate(Arguments& a) {
  InterpolateParams params;
  params.mode = a.choice<Interpolation>(
      "mode", {{"nearest", Interpolation::nearest}, {"bilinear", Interpolation::bilinear}});
  params.align_corners = a.attribute("align_corners", params.align_corners);
  a.pair("size", params.size);
  const auto scale = a.attribute("scale", std::array<double, 2>{0, 0});
  params.scale[0] = scale[0], params.scale[1] = scale[1];
  return interpolate(a.in("x"), params);
}

Tensor run_linear(Arguments& a) {
  const Tensor x = a.in("x"), w = a.in("w"), bias = a.optional("bias");
  return linear(x, w, bias, activation(a), a.impl<MatmulImpl>());
}

template <Tensor (*F)(const Tensor&, const Tensor&, Reduction)> Tensor run_pair_loss(Arguments& a) {
  const Tensor left = a.in("a");
  return F(left, a.in("b"), reduction(a));
}

Tensor run_cross_entropy(Arguments& a) {
  CrossEntropyOptions options{.label_smoothing = a.attribute("label_smoothing", 0.0),
                              .reduction = reduction(a),
                              .weight = a.constant("weight")};
  // A negative target needs no ignoring, so -1 means none.
  const auto ignored = a.attribute<std::int64_t>("ignore_index", -1);
  if (ignored >= 0) options.ignore_index = ignored;
  const Tensor logits = a.in("logits");
  return cross_entropy(logits, a.in("target"), options);
}

Tensor run_bce_with_logits(Arguments& a) {
  const BceOptions options{
      .weight = a.constant("weight"), .pos_weight = a.constant("pos_weight"), .reduction = reduction(a)};
  const Tensor logits = a.in("logits"), target = a.optional("target");
  if (target.defined()) return bce_with_logits(logits, target, options);
  return bce_with_logits(logits, a.attribute("target", 1.0), options);
}

Tensor run_kl_div(Arguments& a) {
  const auto reduction = a.choice<KlReduction>("reduction", {{"mean", KlReduction::mean},
                                                             {"batchmean", KlReduction::batchmean},
                                                             {"sum", KlReduction::sum},
                                                             {"none", KlReduction::none}});
  const Tensor input = a.in("input");
  return kl_div(input, a.in("target"), a.attribute("log_target", false), reduction);
}

Tensor run_triplet_margin_loss(Arguments& a) {
  TripletOptions options;
  options.margin = a.attribute("margin", options.margin);
  options.eps = a.attribute("eps", options.eps);
  options.swap = a.attribute("swap", options.swap);
  options.reduction = reduction(a);
  const Tensor anchor = a.in("anchor"), positive = a.in("positive");
  return triplet_margin_loss(anchor, positive, a.in("negative"), options);
}

Tensor run_attention(Arguments& a) {
  const Tensor q = a.in("q"), k = a.in("k"), v = a.in("v");
  AttentionOptions options{.mask = a.optional("mask"), .causal = a.attribute("causal", false)};
  // 0, useless as a scale, means 1 / sqrt(D).
  if (const double scale = a.attribute("scale", 0.0); scale != 0) options.scale = scale;
  return scaled_dot_product_attention(q, k, v, options);
}

const std::map<std::string, Op>& computing_ops() {
  static const std::map<std::string, Op> table = {
      {"adaptive_avg_pool2d",
       [](Arguments& a) {
         const std::int64_t out_h = a.attribute<std::int64_t>("out_h", 1);
         return adaptive_avg_pool2d(a.in("x"), out_h, a.attribute<std::int64_t>("out_w", 1));
       }},
      {"add", binary<add>},
      {"affine",
       [](Arguments& a) { return affine(a.in("x"), a.attribute("scale", 1.0), a.attribute("shift", 0.0)); }},
      {"all", over_axes<all>},
      {"any", over_axes<any>},
      {"argmax", over_axis<argmax, argmax>},
      {"avg_pool2d", run_avg_pool2d},
      {"batch_norm", run_batch_norm},
      {"bce_with_logits", run_bce_with_logits},
      {"clamp",
       [](Arguments& a) {
         const std::optional<double> low = bound(a, "low");
         return clamp(a.in("x"), low, bound(a, "high"));
       }},
      {"conv2d", run_conv2d},
      {"conv_transpose2d", run_conv_transpose2d},
      {"cosine_similarity",
       [](Arguments& a) {
         const Tensor left = a.in("a"), right = a.in("b");
         return cosine_similarity(left, right, a.attribute("axis", 1), a.attribute("eps", 1e-8));
       }},
      {"cross_entropy", run_cross_entropy},
      {"div", binary<div>},
      {"elu", [](Arguments& a) { return elu(a.in("x"), a.attribute("alpha", 1.0)); }},
      {"eq", with_number<eq, eq>},
      {"floor_divide", with_number<floor_divide, floor_divide>},
      {"gather",
       [](Arguments& a) {
         const Tensor x = a.in("x");
         return gather(x, a.attribute("axis", 0), a.in("index"));
       }},
      {"gelu",
       [](Arguments& a) {
         const bool exact = a.choice<bool>("form", {{"erf", true}, {"tanh", false}});
         return exact ? gelu(a.in("x")) : gelu_tanh(a.in("x"));
       }},
      {"ge", with_number<ge, ge>},
      {"gt", with_number<gt, gt>},
      {"group_norm", run_group_norm},
      {"huber_loss",
       [](Arguments& a) {
         const Tensor left = a.in("a"), right = a.in("b");
         return huber_loss(left, right, a.attribute("delta", 1.0), reduction(a));
       }},
      {"index_select",
       [](Arguments& a) {
         const Tensor x = a.in("x");
         return index_select(x, a.attribute("axis", 0), a.in("index"));
       }},
      {"instance_norm", run_instance_norm},
      {"interpolate", run_interpolate},
      {"kl_div", run_kl_div},
      {"l1_loss", run_pair_loss<l1_loss>},
      {"layer_norm", run_layer_norm},
      {"le", with_number<le, le>},
      {"leaky_relu", [](Arguments& a) { return leaky_relu(a.in("x"), a.attribute("slope", 0.01)); }},
      {"linear", run_linear},
      {"log_softmax", [](Arguments& a) { return log_softmax(a.in("x"), a.attribute("axis", -1)); }},
      {"logical_and", binary<logical_and>},
      {"logical_not", unary<logical_not>},
      {"logical_or", binary<logical_or>},
      {"logical_xor", binary<logical_xor>},
      {"matmul",
       [](Arguments& a) {
         const Tensor left = a.in("a");
         return matmul(left, a.in("b"), a.impl<MatmulImpl>());
       }},
      {"lt", with_number<lt, lt>},
      {"max", over_axis<max, max>},
      {"max_pool2d", run_max_pool2d},
      {"max_unpool2d",
       [](Arguments& a) {
         const Tensor x = a.in("x"), indices = a.in("indices");
         const std::int64_t out_h = a.attribute<std::int64_t>("out_h", 1);
         return max_unpool2d(x, indices, out_h, a.attribute<std::int64_t>("out_w", 1));
       }},
      {"maximum", binary<maximum>},
      {"mean", over_axes<mean>},
      {"minimum", binary<minimum>},
      {"mse_loss", run_pair_loss<mse_loss>},
      {"mul", binary<mul>},
      {"ne", with_number<ne, ne>},
      {"neg", unary<neg>},
      {"nll_loss",
       [](Arguments& a) {
         const Tensor log_probs = a.in("log_probs");
         return nll_loss(log_probs, a.in("target"), reduction(a));
       }},
      {"nt_xent_loss",
       [](Arguments& a) {
         const Tensor left = a.in("a"), right = a.in("b");
         return nt_xent_loss(left, right, a.attribute("temperature", 0.5));
       }},
      {"pixel_shuffle",
       [](Arguments& a) { return pixel_shuffle(a.in("x"), a.attribute<std::int64_t>("r", 1)); }},
      {"pixel_unshuffle",
       [](Arguments& a) { return pixel_unshuffle(a.in("x"), a.attribute<std::int64_t>("r", 1)); }},
      {"pow", with_number<pow, pow>},
      {"remainder", with_number<remainder, remainder>},
      {"scaled_dot_product_attention", run_attention},
      {"smooth_l1_loss",
       [](Arguments& a) {
         const Tensor left = a.in("a"), right = a.in("b");
         return smooth_l1_loss(left, right, a.attribute("beta", 1.0), reduction(a));
       }},
      {"softmax", [](Arguments& a) { return softmax(a.in("x"), a.attribute("axis", -1)); }},
      {"softplus",
       [](Arguments& a) {
         const double beta = a.attribute("beta", 1.0);
         return softplus(a.in("x"), beta, a.attribute("threshold", 20.0));
       }},
      {"sub", binary<sub>},
      {"sum", over_axes<sum>},
      {"topk", run_topk},
      {"triplet_margin_loss", run_triplet_margin_loss},
      {"var",
       [](Arguments& a) {
         const std::vector<int> axes = a.attribute("axes", std::vector<int>{});
         return var(a.in("x"), axes, a.attribute("correction", 1), a.attribute("keepdim", false));
       }},
      {"where",
       [](Arguments& a) {
         const Tensor condition = a.in("condition"), yes = a.in("a");
         return where(condition, yes, a.in("b"));
       }},
// The first of equal names counts: gelu is the one above.
#define ATH_ENTRY(Op, name) {#name, unary<name>},
      ATH_UNARY_OPS(ATH_ENTRY)
#undef ATH_ENTRY
  };
  return table;
}

}  // namespace

const std::map<std::string, Op>& op_table() {
  static const std::map<std::string, Op> table = [] {
    std::map<std::string, Op> all = computing_ops();
    all.insert(shape_op_table().begin(), shape_op_table().end());
    return all;
  }();
  return table;
}

}  // namespace athanor::tool
