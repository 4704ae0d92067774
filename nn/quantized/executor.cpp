#include "nn/quantized/detail/executor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "autograd/conv.h"
#include "autograd/detail/dense.h"
#include "autograd/elementwise.h"
#include "autograd/grad_mode.h"
#include "autograd/matmul.h"
#include "autograd/node.h"
#include "autograd/scalar_ops.h"
#include "kernels/on_device.h"
#include "nn/quantized/detail/index.h"
#include "nn/quantized/detail/replay.h"
#include "tensor/base/pool.h"

namespace athanor::nn::quantized {
namespace {

/// A number as `y` stores it.
std::int32_t stored(double number, const Quantizer& y) {
  const double steps = std::nearbyint(number / static_cast<double>(y.scale)) + y.zero;
  return static_cast<std::int32_t>(std::clamp(steps, 0.0, 255.0));
}

/// scale * largest, which bounds what is rounded, must be small enough.
float checked_scale(const Op& op, double scale, double largest) {
  ATH_CHECK(std::isfinite(scale) && scale * largest <= Executor::kMostSteps,
            "quantized: results of '{}' must be within {:.6g} steps of their scale, but may be {:.6g}",
            op.name, Executor::kMostSteps, scale * largest);
  return static_cast<float>(scale);
}

/// The elements of a dense tensor as rows of its last axis: [rows, 1, 1, C].
Tensor rows_of(const Tensor& x) {
  const std::int64_t channels = x.dim(-1), rows = channels ? x.numel() / channels : 0;
  return x.view_as_strided({rows, 1, 1, channels}, {channels, channels, channels, 1}, 0);
}

/// Reports an op in 8-bit integers to a profiler.
Tensor recorded(const char* op, const Tensor& y, const Tensor& x) {
  return record(op, y, {x});
}

}  // namespace

// Preparation ----------------------------------------------------------------------------------------------

Executor::Executor(const Graph& graph) : graph_(graph), steps_(graph.ops.size()) {
  place_values();
  for (std::size_t i = 0; i < steps_.size(); ++i) prepare(graph.ops[i], steps_[i]);
}

/// Gives each value a slot from its op to its last reader.
void Executor::place_values() {
  std::vector<std::size_t> last(graph_.values.size(), 0);
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    last[at(graph_.ops[i].output)] = i;
    for (const int input : graph_.ops[i].inputs) last[at(input)] = i;
  }
  last[at(graph_.output)] = graph_.ops.size();
  std::vector<int> slots(graph_.values.size(), -1), free;
  const auto place = [&](int value) {
    if (free.empty()) free.push_back(slots_++);
    slots[at(value)] = free.back();
    free.pop_back();
    return slots[at(value)];
  };
  input_slot_ = place(graph_.input);
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    const Op& op = graph_.ops[i];
    Step& step = steps_[i];
    for (const int input : op.inputs) {
      const int slot = slots[at(input)];
      step.inputs.push_back(slot);
      if (last[at(input)] == i && std::find(free.begin(), free.end(), slot) == free.end()) {
        step.freed.push_back(slot);
        free.push_back(slot);
      }
    }
    step.output = place(op.output);
  }
  output_slot_ = slots[at(graph_.output)];
}

void Executor::prepare(const Op& op, Step& step) const {
  const auto quantizer = [&](int i) {
    if (value(i).dtype != DType::u8) return Quantizer{};
    const Quantizer result = quantizer_of(graph_, value(i));
    ATH_CHECK(std::isfinite(result.scale) && result.scale >= std::numeric_limits<float>::min() &&
                  result.zero >= 0 && result.zero <= 255,
              "quantized: '{}' must have a finite scale > 0 and a zero in [0, 255], but has {} and {}",
              graph_.quantizers[at(value(i).quantizer)].name, result.scale, result.zero);
    return result;
  };
  step.x = quantizer(op.inputs.empty() ? op.output : op.inputs[0]);
  if (op.inputs.size() > 1) step.other = quantizer(op.inputs[1]);
  step.y = quantizer(op.output);
  if (op.kind == OpKind::product) return prepare_product(op, step);
  if (value(op.output).dtype != DType::u8) return;
  step.rounding.zero = step.y.zero;
  if (op.low) step.rounding.low = stored(*op.low, step.y);
  if (op.high) step.rounding.high = stored(*op.high, step.y);
  const double x = step.x.scale, other = step.other.scale, y = step.y.scale;
  if (op.kind == OpKind::avg_pool) {
    const auto count = static_cast<double>(op.pool.window[0] * op.pool.window[1]);
    step.scale = checked_scale(op, x / (y * count), 255 * count);
  } else if (op.kind == OpKind::add) {
    step.scale = checked_scale(op, x / y, 255);
    step.other_scale = checked_scale(op, other / y, 255);
  } else if (op.kind == OpKind::multiply) {
    step.scale = checked_scale(op, x * other / y, 255.0 * 255.0);
  }
}

void Executor::prepare_product(const Op& op, Step& step) const {
  const Shape& w = op.weight.shape();
  if (!op.in_int8()) {
    if (op.linear && op.conv.groups == 1) step.matrix = op.weight.view_as_strided({w[0], w[3]}, {w[3], 1}, 0);
    return;
  }
  const Tensor weight = op.weight.to(kCpu), scales = op.weight_scale.to(kCpu), bias = op.bias.to(kCpu);
  const std::int8_t* const weights = weight.data<std::int8_t>();
  ATH_CHECK(std::find(weights, weights + weight.numel(), std::int8_t{-128}) == weights + weight.numel(),
            "quantized: weights must be in [-127, 127], but '{}.weight' holds -128", op.name);
  for (std::int64_t k = 0; k < w[0]; ++k) {
    const float scale = scales.data<float>()[k], shift = bias.data<float>()[k];
    ATH_CHECK(std::isfinite(scale) && scale > 0 && std::isfinite(shift),
              "quantized: scales must be finite and > 0, and biases finite, but '{}' has {} and {} at {}",
              op.name, scale, shift, k);
  }
  const bool rounds = value(op.output).dtype == DType::u8;
  const Tensor sums = integer_bias(op, step.x), multiplier = Tensor::empty({w[0]});
  constexpr double kMostSum = std::numeric_limits<std::int32_t>::max();
  for (std::int64_t k = 0; k < w[0]; ++k) {
    const double unit = static_cast<double>(step.x.scale) * static_cast<double>(scales.data<float>()[k]) /
                        (rounds ? static_cast<double>(step.y.scale) : 1.0);
    ATH_CHECK(unit * kMostSum <= static_cast<double>(std::numeric_limits<float>::max()),
              "quantized: results of '{}' must be finite, but channel {} has a scale of {:.6g}", op.name, k,
              unit);
    double largest = std::abs(static_cast<double>(sums.data<std::int32_t>()[k]));
    const std::int64_t each = w[1] * w[2] * w[3];
    for (std::int64_t i = 0; i < each; ++i) largest += 255.0 * std::abs(weights[k * each + i]);
    multiplier.data<float>()[k] = rounds ? checked_scale(op, unit, largest) : static_cast<float>(unit);
  }
  const Device device = op.weight.device();
  step.weights =
      std::make_unique<kernels::Int8Weights>(op.weight.detach(), multiplier.to(device), sums.to(device));
  if (!rounds) return;
  step.rounding.zero = step.y.zero;
  if (op.low) step.rounding.low = stored(*op.low, step.y);
  if (op.high) step.rounding.high = stored(*op.high, step.y);
  if (op.inputs.size() > 1)
    step.other_scale =
        checked_scale(op, static_cast<double>(step.other.scale) / static_cast<double>(step.y.scale), 255);
}

// Execution ------------------------------------------------------------------------------------------------

Tensor Executor::run(const Tensor& images, const Watch* watch) const {
  const NoGrad no_grad;
  const std::int64_t count = images.dim(0);
  PoolVector<Tensor> slots(at(slots_));
  slots[at(input_slot_)] = images;
  if (watch) (*watch)(graph_.input, images);
  PoolVector<Tensor> inputs;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Op& op = graph_.ops[i];
    const Step& step = steps_[i];
    inputs.clear();
    for (const int slot : step.inputs) inputs.push_back(slots[at(slot)]);
    const Tensor y = compute(op, step, inputs.data(), count);
    if (watch) (*watch)(op.output, y);
    slots[at(step.output)] = y;
    for (const int slot : step.freed) {
      if (slot != step.output) slots[at(slot)] = {};
    }
  }
  return slots[at(output_slot_)];
}

Tensor Executor::compute(const Op& op, const Step& step, const Tensor* inputs, std::int64_t images) const {
  if (op.in_int8() || op.kind == OpKind::quantize || op.kind == OpKind::dequantize ||
      value(op.output).dtype == DType::u8)
    return in_int8(op, step, inputs, images);
  if (op.kind == OpKind::product) return product_in_f32(op, step, inputs);
  const Tensor y = replay(op, {inputs, op.inputs.size()}, images);
  return op.low || op.high ? clamp(y, op.low, op.high) : y;
}

Tensor Executor::product_in_f32(const Op& op, const Step& step, const Tensor* inputs) const {
  const bool residual = op.inputs.size() > 1;
  const bool relu = op.low == 0.0 && !op.high && !residual;
  const Activation activation = relu ? Activation::relu : Activation::none;
  Tensor y;
  if (step.matrix.defined()) {
    y = linear(inputs[0], step.matrix, op.bias, activation);
  } else {
    Conv2dParams params = op.conv;
    params.activation = activation;
    const Tensor x = op.linear ? rows_of(dense(inputs[0])) : inputs[0];
    y = conv2d(x, op.weight, op.bias, params);
    if (op.linear) y = y.view_as_strided(inputs[0].shape(), contiguous_strides(inputs[0].shape()), 0);
  }
  if (residual) y = y + inputs[1];
  return relu || (!op.low && !op.high) ? y : clamp(y, op.low, op.high);
}

Tensor Executor::in_int8(const Op& op, const Step& step, const Tensor* inputs, std::int64_t images) const {
  const Device device = inputs[0].device();
  if (op.kind == OpKind::view) return replay(op, {inputs, op.inputs.size()}, images);
  const Value& result = value(op.output);
  const Tensor x = dense(inputs[0]), y = Tensor::empty(result.shape.of(images), {result.dtype, device});
  const Tensor other = op.inputs.size() > 1 ? dense(inputs[1]) : Tensor();
  const kernels::Int8Residual residual{other, step.other_scale, step.other.zero};
  const char* name = "";
  on_device(device, [&](auto& context) {
    switch (op.kind) {
      case OpKind::quantize: name = "quantize"; return kernels::quantize(context, x, step.y, y);
      case OpKind::dequantize: name = "dequantize"; return kernels::dequantize(context, x, step.x, y);
      case OpKind::product: {
        name = op.linear ? "linear_int8" : "conv2d_int8";
        const Tensor in = op.linear ? rows_of(x) : x, out = op.linear ? rows_of(y) : y;
        if (result.dtype == DType::f32)
          return kernels::conv2d_int8(context, op.conv, in, step.x.zero, *step.weights, out);
        const kernels::Int8Residual added{other.defined() && op.linear ? rows_of(other) : other,
                                          step.other_scale, step.other.zero};
        return kernels::conv2d_int8(context, op.conv, in, step.x.zero, *step.weights, added, step.rounding,
                                    out);
      }
      case OpKind::max_pool:
        name = "max_pool2d_int8";
        return kernels::max_pool2d_int8(context, op.pool, x, y);
      case OpKind::avg_pool: {
        name = "avg_pool2d_int8";
        const Shape& in = x.shape();
        const std::int64_t p = (in[1] - op.pool.window[0]) / op.pool.stride[0] + 1,
                           q = (in[2] - op.pool.window[1]) / op.pool.stride[1] + 1;
        const Shape pooled{in[0], p, q, in[3]};  // y may have no axes for H and W
        return kernels::avg_pool2d_int8(context, op.pool, x, step.x.zero, step.scale, step.rounding,
                                        y.view_as_strided(pooled, contiguous_strides(pooled), 0));
      }
      case OpKind::add:
        name = "add_int8";
        return kernels::add_int8(context, x, step.scale, step.x.zero, residual, step.rounding, y);
      case OpKind::multiply:
        name = "multiply_int8";
        return kernels::multiply_int8(context, x, step.x.zero, other, step.other.zero, step.scale,
                                      step.rounding, y);
      case OpKind::table: name = "lookup_int8"; return kernels::lookup_int8(context, x, op.table, y);
      case OpKind::view:
      case OpKind::real: break;
    }
  });
  return recorded(name, y, inputs[0]);
}

}  // namespace athanor::nn::quantized
