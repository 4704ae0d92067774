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

// Of two tensors, or of one and the attribute `number`.
using OfNumber = Tensor (*)(const Tensor&, double);
template <Tensor (*F)(const Tensor&, const Tensor&), OfNumber G> Tensor with_number(Arguments& a) {
  const Tensor left = a.in("a");
  return a.given("number") ? G(left, a.attribute("number", 0.0)) : F(left, a.in("b"));
}

template <Tensor (*F)(const Tensor&, std::span<const int>, bool)> Tensor over_axes(Arguments& a) {
  const Tensor x = a.in("x");
  return F(x, a.attribute("axes", std::vector<int>{}), a.attribute("keepdim", false));
}

// Along an axis, or of all elements where none is given.
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
  a.pair("dilation", params.dilation);
  params.groups = a.attribute("groups", params.groups);
  params.activation = activation(a);
  params.impl = a.impl<ConvImpl>();
  const Tensor x = a.in("x"), w = a.in("w");
  return conv2d(x, w, a.optional("bias"), params);
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

template <Tensor (*F)(const Tensor&, const Pool2dParams&)> Tensor run_pool2d(Arguments& a) {
  Pool2dParams params;
  a.pair("window", params.window);
  a.pair("stride", params.stride);
  a.pair("padding", params.padding);
  params.ceil_mode = a.attribute("ceil_mode", params.ceil_mode);
  params.count_padding = a.attribute("count_padding", params.count_padding);
  return F(a.in("x"), params);
}

Tensor run_linear(Arguments& a) {
  const Tensor x = a.in("x"), w = a.in("w"), bias = a.optional("bias");
  return linear(x, w, bias, activation(a), a.impl<MatmulImpl>());
}

Tensor run_cross_entropy(Arguments& a) {
  const Tensor logits = a.in("logits");
  return cross_entropy(logits, a.in("target"), a.attribute("label_smoothing", 0.0), reduction(a));
}

}  // namespace

const std::map<std::string, Op>& op_table() {
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
      {"avg_pool2d", run_pool2d<avg_pool2d>},
      {"batch_norm", run_batch_norm},
      {"clamp",
       [](Arguments& a) {
         const std::optional<double> low = bound(a, "low");
         return clamp(a.in("x"), low, bound(a, "high"));
       }},
      {"conv2d", run_conv2d},
      {"cross_entropy", run_cross_entropy},
      {"div", binary<div>},
      {"elu", [](Arguments& a) { return elu(a.in("x"), a.attribute("alpha", 1.0)); }},
      {"eq", with_number<eq, eq>},
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
      {"index_select",
       [](Arguments& a) {
         const Tensor x = a.in("x");
         return index_select(x, a.attribute("axis", 0), a.in("index"));
       }},
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
      {"max_pool2d", run_pool2d<max_pool2d>},
      {"maximum", binary<maximum>},
      {"mean", over_axes<mean>},
      {"minimum", binary<minimum>},
      {"mse_loss",
       [](Arguments& a) {
         const Tensor left = a.in("a");
         return mse_loss(left, a.in("b"), reduction(a));
       }},
      {"mul", binary<mul>},
      {"ne", with_number<ne, ne>},
      {"nll_loss",
       [](Arguments& a) {
         const Tensor log_probs = a.in("log_probs");
         return nll_loss(log_probs, a.in("target"), reduction(a));
       }},
      {"pow", with_number<pow, pow>},
      {"softmax", [](Arguments& a) { return softmax(a.in("x"), a.attribute("axis", -1)); }},
      {"softplus",
       [](Arguments& a) {
         const double beta = a.attribute("beta", 1.0);
         return softplus(a.in("x"), beta, a.attribute("threshold", 20.0));
       }},
      {"sub", binary<sub>},
      {"sum", over_axes<sum>},
      {"topk", run_topk},
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
// Of equal names the first counts: gelu is the one above.
#define ATH_ENTRY(Op, name) {#name, unary<name>},
      ATH_UNARY_OPS(ATH_ENTRY)
#undef ATH_ENTRY
  };
  return table;
}

}  // namespace athanor::tool
