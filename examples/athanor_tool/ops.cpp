#include "examples/athanor_tool/ops.h"

#include "athanor.h"

namespace athanor::tool {
namespace {

Activation activation(Arguments& a) {
  return a.choice<Activation>("activation", {{"none", Activation::none},
                                             {"relu", Activation::relu},
                                             {"gelu", Activation::gelu},
                                             {"silu", Activation::silu}});
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
  return cross_entropy(logits, a.in("target"), a.attribute("label_smoothing", 0.0f), reduction(a));
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
      {"avg_pool2d", run_pool2d<avg_pool2d>},
      {"conv2d", run_conv2d},
      {"cross_entropy", run_cross_entropy},
      {"gather",
       [](Arguments& a) {
         const Tensor x = a.in("x");
         return gather(x, a.attribute("axis", 0), a.in("index"));
       }},
      {"index_select",
       [](Arguments& a) {
         const Tensor x = a.in("x");
         return index_select(x, a.attribute("axis", 0), a.in("index"));
       }},
      {"linear", run_linear},
      {"matmul",
       [](Arguments& a) {
         const Tensor left = a.in("a");
         return matmul(left, a.in("b"), a.impl<MatmulImpl>());
       }},
      {"max_pool2d", run_pool2d<max_pool2d>},
      {"mse_loss",
       [](Arguments& a) {
         const Tensor left = a.in("a");
         return mse_loss(left, a.in("b"), reduction(a));
       }},
      {"mul", binary<mul>},
      {"nll_loss",
       [](Arguments& a) {
         const Tensor log_probs = a.in("log_probs");
         return nll_loss(log_probs, a.in("target"), reduction(a));
       }},
      {"relu", unary<relu>},
      {"where",
       [](Arguments& a) {
         const Tensor condition = a.in("condition"), yes = a.in("a");
         return where(condition, yes, a.in("b"));
       }},
  };
  return table;
}

}  // namespace athanor::tool
