#include "nn/quantized/detail/replay.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "autograd/compare.h"
#include "autograd/conv.h"
#include "autograd/conv_transpose.h"
#include "autograd/elementwise.h"
#include "autograd/interpolate.h"
#include "autograd/matmul.h"
#include "autograd/norm.h"
#include "autograd/pool.h"
#include "autograd/reduce.h"
#include "autograd/scalar_ops.h"
#include "autograd/shape.h"
#include "autograd/softmax.h"
#include "kernels/compare.h"
#include "tensor/base/pool.h"

namespace athanor::nn::quantized {
namespace {

using Operands = std::span<const Tensor>;
using Table = std::map<std::string_view, Replay>;

int axis_of(const Call& call) {
  return static_cast<int>(integer_of(call, "axis"));
}

Activation activation_of(const Call& call) {
  return static_cast<Activation>(integer_of(call, "activation"));
}

void read_pair(const Call& call, std::string_view attribute, std::int64_t (&to)[2]) {
  const std::span<const double> values = numbers_of(call, attribute);
  for (std::size_t i = 0; i < 2; ++i)
    to[i] = static_cast<std::int64_t>(values[std::min(i, values.size() - 1)]);
}

// Elementwise ----------------------------------------------------------------------------------------------

Tensor replay_affine(const Call& call, Operands x, const Shape&) {
  return affine(x[0], number_of(call, "scale"), number_of(call, "shift"));
}

Tensor replay_neg(const Call&, Operands x, const Shape&) {
  return neg(x[1]);  // of zero less x
}

Tensor replay_leaky_relu(const Call& call, Operands x, const Shape&) {
  return leaky_relu(x[0], number_of(call, "numbers"));
}

Tensor replay_elu(const Call& call, Operands x, const Shape&) {
  return elu(x[0], number_of(call, "numbers"));
}

Tensor replay_softplus(const Call& call, Operands x, const Shape&) {
  const std::span<const double> given = numbers_of(call, "numbers");
  return softplus(x[0], given[0], given[1]);
}

std::optional<double> bound_of(double number) {
  return std::isnan(number) ? std::nullopt : std::optional(number);
}

Tensor replay_clamp(const Call& call, Operands x, const Shape&) {
  const std::span<const double> given = numbers_of(call, "numbers");
  return clamp(x[0], bound_of(given[0]), bound_of(given[1]));
}

Tensor replay_pow(const Call& call, Operands x, const Shape&) {
  return x.size() == 2 ? pow(x[0], x[1]) : pow(x[0], number_of(call, "numbers"));
}

Tensor replay_compare(const Call& call, Operands x, const Shape&) {
  const Tensor &a = x[0], &b = x[1];
  switch (static_cast<kernels::Predicate>(integer_of(call, "predicate"))) {
    case kernels::Predicate::equal: return eq(a, b);
    case kernels::Predicate::not_equal: return ne(a, b);
    case kernels::Predicate::less: return lt(a, b);
    case kernels::Predicate::less_equal: return le(a, b);
    case kernels::Predicate::logical_and: return logical_and(a, b);
    case kernels::Predicate::logical_or: return logical_or(a, b);
    case kernels::Predicate::logical_xor: return logical_xor(a, b);
  }
  return {};
}

Table elementwise_ops() {
  Table table{{"affine", replay_affine},
              {"neg", replay_neg},
              {"leaky_relu", replay_leaky_relu},
              {"elu", replay_elu},
              {"softplus", replay_softplus},
              {"clamp", replay_clamp},
              {"compare", replay_compare},
              {"where", [](const Call&, Operands x, const Shape&) { return where(x[0], x[1], x[2]); }},
              {"cast", [](const Call& call, Operands x, const Shape&) { return cast(x[0], call.dtype); }}};
#define ATH_ADD(Op, name) \
  table[#name] = [](const Call&, Operands x, const Shape&) { return athanor::name(x[0]); };
  ATH_UNARY_OPS(ATH_ADD)
#undef ATH_ADD
#define ATH_ADD(Op, name) \
  table[#name] = [](const Call&, Operands x, const Shape&) { return athanor::name(x[0], x[1]); };
  ATH_BINARY_OPS(ATH_ADD)
#undef ATH_ADD
  table["pow"] = replay_pow;
  return table;
}

// Images ---------------------------------------------------------------------------------------------------

Tensor replay_conv2d(const Call& call, Operands x, const Shape&) {
  Conv2dParams params = conv_of(call);
  params.activation = activation_of(call);
  return conv2d(x[0], x[1], x[2], params);
}

Tensor replay_conv_transpose2d(const Call& call, Operands x, const Shape&) {
  ConvTranspose2dParams params;
  read_pair(call, "stride", params.stride);
  read_pair(call, "padding", params.padding);
  read_pair(call, "output_padding", params.output_padding);
  read_pair(call, "dilation", params.dilation);
  params.groups = integer_of(call, "groups");
  return conv_transpose2d(x[0], x[1], x[2], params);
}

// By size, unless a scale was given whose steps a size would not give.
Tensor replay_interpolate(const Call& call, Operands x, const Shape& y) {
  InterpolateParams params{.mode = static_cast<Interpolation>(integer_of(call, "mode")),
                           .align_corners = integer_of(call, "align_corners") != 0,
                           .size = {y[1], y[2]}};
  InterpolateParams scaled{.mode = params.mode};
  bool differs = false, fits = !params.align_corners;
  for (int i = 0; i < 2; ++i) {
    const double step = numbers_of(call, "scale")[static_cast<std::size_t>(i)];
    const auto in = static_cast<double>(x[0].dim(1 + i)), out = static_cast<double>(y[1 + i]);
    scaled.scale[i] = 1 / step;
    differs = differs || step != in / out;
    fits = fits && std::floor(in * scaled.scale[i]) == out;
  }
  return interpolate(x[0], differs && fits ? scaled : params);
}

Table image_ops() {
  return {{"conv2d", replay_conv2d},
          {"conv_transpose2d", replay_conv_transpose2d},
          {"max_pool2d", [](const Call& call, Operands x,
                            const Shape& y) { return max_pool2d(x[0], pool_of(call, x[0].shape(), y)); }},
          {"avg_pool2d", [](const Call& call, Operands x,
                            const Shape& y) { return avg_pool2d(x[0], pool_of(call, x[0].shape(), y)); }},
          {"adaptive_avg_pool2d",
           [](const Call&, Operands x, const Shape& y) { return adaptive_avg_pool2d(x[0], y[1], y[2]); }},
          {"interpolate", replay_interpolate}};
}

// Norms and products ---------------------------------------------------------------------------------------

Tensor replay_batch_norm(const Call& call, Operands x, const Shape&) {
  const BatchNormParams params{.eps = number_of(call, "eps"), .activation = activation_of(call)};
  return batch_norm(x[0], x[1], x[2], x[3], x[4], integer_of(call, "training") != 0, params, x[5]);
}

Tensor replay_layer_norm(const Call& call, Operands x, const Shape&) {
  return layer_norm(x[0], x[1], x[2], number_of(call, "eps"), static_cast<int>(integer_of(call, "axes")));
}

Tensor replay_group_norm(const Call& call, Operands x, const Shape&) {
  return group_norm(x[0], integer_of(call, "groups"), x[1], x[2], number_of(call, "eps"));
}

Table norm_and_product_ops() {
  return {
      {"batch_norm", replay_batch_norm},
      {"layer_norm", replay_layer_norm},
      {"group_norm", replay_group_norm},
      {"instance_norm", [](const Call& call, Operands x,
                           const Shape&) { return instance_norm(x[0], x[1], x[2], number_of(call, "eps")); }},
      {"linear", [](const Call& call, Operands x,
                    const Shape&) { return linear(x[0], x[1], x[2], activation_of(call)); }},
      {"matmul", [](const Call&, Operands x, const Shape&) { return matmul(x[0], x[1]); }}};
}

// Reductions -----------------------------------------------------------------------------------------------

/// The axes that an op reduces, whose attribute has a bit for each.
struct Axes {
  std::array<int, kMaxRank> list{};
  std::size_t count = 0;
  bool keeps;

  Axes(const Call& call, const Tensor& x, const Shape& y) : keeps(y.rank() == x.rank()) {
    const std::int64_t bits = integer_of(call, "axes");
    for (int axis = 0; axis < x.rank(); ++axis) {
      if (bits >> axis & 1) list[count++] = axis;
    }
  }
  operator std::span<const int>() const { return {list.data(), count}; }
};

/// f(x, axis, keepdim) over one axis, or f(x) over all.
template <class F, class All>
Tensor over_axis(const Call& call, const Tensor& x, const Shape& y, const F& f, const All& all) {
  const Axes axes(call, x, y);
  return axes.count == 1 ? f(x, axes.list[0], axes.keeps) : all(x);
}

Table reduce_ops() {
  return {
      {"sum",
       [](const Call& call, Operands x, const Shape& y) {
         const Axes axes(call, x[0], y);
         return sum(x[0], axes, axes.keeps);
       }},
      {"mean",
       [](const Call& call, Operands x, const Shape& y) {
         const Axes axes(call, x[0], y);
         return mean(x[0], axes, axes.keeps);
       }},
      {"var",
       [](const Call& call, Operands x, const Shape& y) {
         const Axes axes(call, x[0], y);
         return var(x[0], axes, static_cast<int>(integer_of(call, "correction")), axes.keeps);
       }},
      {"max",
       [](const Call& call, Operands x, const Shape& y) {
         return over_axis(
             call, x[0], y, [](const Tensor& t, int axis, bool keeps) { return max(t, axis, keeps); },
             [](const Tensor& t) { return max(t); });
       }},
      {"argmax",
       [](const Call& call, Operands x, const Shape& y) {
         return over_axis(
             call, x[0], y, [](const Tensor& t, int axis, bool keeps) { return argmax(t, axis, keeps); },
             [](const Tensor& t) { return argmax(t); });
       }},
      {"softmax", [](const Call& call, Operands x, const Shape&) { return softmax(x[0], axis_of(call)); }},
      {"log_softmax",
       [](const Call& call, Operands x, const Shape&) { return log_softmax(x[0], axis_of(call)); }}};
}

// Shapes ---------------------------------------------------------------------------------------------------

Tensor replay_permute(const Call& call, Operands x, const Shape&) {
  const std::span<const double> order = numbers_of(call, "order");
  std::array<int, kMaxRank> axes{};
  for (std::size_t i = 0; i < order.size(); ++i) axes.at(i) = static_cast<int>(order[i]);
  return permute(x[0], std::span<const int>(axes.data(), order.size()));
}

Tensor replay_narrow(const Call& call, Operands x, const Shape& y) {
  const int axis = axis_of(call);
  return narrow(x[0], axis, integer_of(call, "start"), y[axis]);
}

Table shape_ops() {
  return {
      {"reshape", [](const Call&, Operands x, const Shape& y) { return reshape(x[0], y); }},
      {"permute", replay_permute},
      {"narrow", replay_narrow},
      {"select", [](const Call& call, Operands x,
                    const Shape&) { return select(x[0], axis_of(call), integer_of(call, "index")); }},
      {"squeeze", [](const Call& call, Operands x, const Shape&) { return squeeze(x[0], axis_of(call)); }},
      {"unsqueeze",
       [](const Call& call, Operands x, const Shape&) { return unsqueeze(x[0], axis_of(call)); }},
      {"expand", [](const Call&, Operands x, const Shape& y) { return expand(x[0], y); }},
      {"clone", [](const Call&, Operands x, const Shape&) { return contiguous(x[0]); }},
      {"cat", [](const Call& call, Operands x, const Shape&) { return cat(x, axis_of(call)); }},
      {"stack", [](const Call& call, Operands x, const Shape&) { return stack(x, axis_of(call)); }},
      {"index_select",
       [](const Call& call, Operands x, const Shape&) { return index_select(x[0], axis_of(call), x[1]); }},
      {"gather",
       [](const Call& call, Operands x, const Shape&) { return gather(x[0], axis_of(call), x[1]); }}};
}

Tensor operand_of(const Op& op, const Operand& operand, Operands inputs, Operands results,
                  std::int64_t images) {
  const auto at = static_cast<std::size_t>(operand.index);
  switch (operand.from) {
    case Operand::From::none: return {};
    case Operand::From::input: return inputs[at];
    case Operand::From::call: return results[at];
    case Operand::From::constant: break;
  }
  const Constant& constant = op.constants[at];
  return constant.shape.grows == 0 ? constant.value : expand(constant.value, constant.shape.of(images));
}

}  // namespace

Replay replay_of(std::string_view op) {
  static const Table kTable = [] {
    Table all = elementwise_ops();
    for (Table table : {image_ops(), norm_and_product_ops(), reduce_ops(), shape_ops()}) all.merge(table);
    return all;
  }();
  const auto found = kTable.find(op);
  return found == kTable.end() ? nullptr : found->second;
}

Tensor replay(const Op& op, std::span<const Tensor> inputs, std::int64_t images) {
  PoolVector<Tensor> results, operands;
  results.reserve(op.calls.size());
  for (const Call& call : op.calls) {
    operands.clear();
    for (const Operand& operand : call.operands)
      operands.push_back(operand_of(op, operand, inputs, results, images));
    results.push_back(replay_of(call.op)(call, operands, call.result.of(images)));
  }
  return results.back();
}

std::span<const double> numbers_of(const Call& call, std::string_view attribute) {
  const auto found = std::find_if(call.attributes.begin(), call.attributes.end(),
                                  [&](const Attribute& one) { return one.name == attribute; });
  ATH_CHECK(found != call.attributes.end() && !found->values.empty(),
            "quantize: op '{}' must record its '{}', but does not", call.op, attribute);
  return found->values;
}

Pool2dParams pool_of(const Call& call, const Shape& x, const Shape& y) {
  Pool2dParams params;
  read_pair(call, "window", params.window);
  read_pair(call, "stride", params.stride);
  read_pair(call, "padding", params.padding);
  read_pair(call, "dilation", params.dilation);
  params.count_padding = integer_of(call, "count_padding") != 0;
  for (int i = 0; i < 2; ++i) {
    const std::int64_t extent = params.dilation[i] * (params.window[i] - 1) + 1;
    const std::int64_t whole = (x[1 + i] + 2 * params.padding[i] - extent) / params.stride[i] + 1;
    params.ceil_mode = params.ceil_mode || y[1 + i] > whole;
  }
  return params;
}

Conv2dParams conv_of(const Call& call) {
  Conv2dParams params;
  read_pair(call, "stride", params.stride);
  read_pair(call, "padding", params.padding);
  read_pair(call, "dilation", params.dilation);
  params.groups = integer_of(call, "groups");
  return params;
}

}  // namespace athanor::nn::quantized
