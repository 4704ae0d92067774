#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "autograd/shape.h"
#include "kernels/cpu/context.h"
#include "nn/quantized/detail/build.h"
#include "nn/quantized/detail/executor.h"
#include "nn/quantized/detail/index.h"
#include "nn/quantized/detail/replay.h"
#include "nn/quantized/quantized_network.h"
#include "tensor/base/nearest.h"

namespace athanor::nn {

using quantized::at;
using quantized::Graph;
using quantized::Op;
using quantized::OpKind;
using quantized::StoredQuantizer;
using quantized::Value;

namespace {

void check_names(const Calibration& calibration, const std::vector<std::string>& keep) {
  const std::vector<std::string> products = calibration.products();
  for (const std::string& name : keep)
    ATH_CHECK(
        std::find(products.begin(), products.end(), name) != products.end(),
        "quantize: a layer to keep must be a convolution, linear layer or lone batch norm of the network, "
        "but there is no '{}'{}",
        name, did_you_mean(name, products));
}

void set(const StoredQuantizer& stored, const Quantizer& quantizer) {
  *stored.scale.data<float>() = quantizer.scale;
  *stored.zero.data<std::uint8_t>() = static_cast<std::uint8_t>(quantizer.zero);
}

/// What a calibration saw, by the value's name.
class Observed {
 public:
  explicit Observed(const Calibration& calibration) {
    for (const ObservedValue& value : calibration.values()) by_name_[value.name] = &value;
  }
  const ObservedValue& of(const std::string& name) const { return *by_name_.at(name); }

 private:
  std::map<std::string, const ObservedValue*> by_name_;
};

/// What was seen of all values that have one quantizer, but those that an op moved there from others.
std::vector<ObservedValue> seen_by_quantizer(const Graph& graph, const Observed& observed) {
  std::vector<bool> moved(graph.values.size());
  for (const Op& op : graph.ops)
    moved[at(op.output)] = op.kind == OpKind::view || op.kind == OpKind::max_pool;
  std::vector<ObservedValue> all(graph.quantizers.size());
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (value.dtype != DType::u8 || moved[i]) continue;
    const ObservedValue& seen = observed.of(value.name);
    ObservedValue& sum = all[at(value.quantizer)];
    if (sum.name.empty()) {
      sum = seen;
      continue;
    }
    sum.min = std::min(sum.min, seen.min);
    sum.max = std::max(sum.max, seen.max);
    sum.rows += seen.rows;
    sum.histogram.add(seen.histogram);
    sum.channel_means.clear();
  }
  return all;
}

double scale_of(const Graph& graph, int value) {
  return quantizer_of(graph, graph.values[at(value)]).scale;
}

/// The largest result that an op in 8-bit integers can have, by its operands' scales.
double largest_result(const Graph& graph, const Op& op, const Op& in_f32) {
  const auto most = [&](std::size_t i) { return 255 * scale_of(graph, op.inputs[i]); };
  if (op.kind == OpKind::multiply) return most(0) * most(1);
  double largest = op.inputs.size() > 1 ? std::max(most(0), most(1)) : most(0);
  if (op.kind != OpKind::product) return largest;
  const std::int64_t channels = in_f32.weight.dim(0), each = in_f32.weight.numel() / channels;
  for (std::int64_t k = 0; k < channels; ++k) {
    double sum = std::abs(static_cast<double>(in_f32.bias.data<float>()[k]));
    for (std::int64_t i = 0; i < each; ++i)
      sum += most(0) * std::abs(static_cast<double>(in_f32.weight.data<float>()[k * each + i]));
    largest = std::max(largest, sum);
  }
  return largest;
}

/// Raises scales that are so small beside what their ops can give that it would not fit 32 bits: those of
/// channels that are 0, or nearly, on all images.
void raise_scales(const Graph& graph, const Graph& in_f32) {
  bool raised = true;
  for (std::size_t pass = 0; raised && pass <= graph.ops.size(); ++pass) {
    raised = false;
    for (const Op& op : graph.ops) {
      const Value& result = graph.values[at(op.output)];
      if (result.dtype != DType::u8 || op.kind == OpKind::quantize || op.kind == OpKind::table) continue;
      const StoredQuantizer& stored = graph.quantizers[at(result.quantizer)];
      const Op* const origin = in_f32.op_named(op.name);
      const double least = largest_result(graph, op, *origin) / (quantized::Executor::kMostSteps / 8);
      if (*stored.scale.data<float>() >= least) continue;
      *stored.scale.data<float>() = static_cast<float>(least * 1.001);
      raised = true;
    }
  }
}

/// Rounds a product's weights, for x as its quantizer stores it.
class Weights {
 public:
  Weights(const Op& from, const Op& to, const Quantizer& x) : from_(from), to_(to), x_(x) {
    const Shape& w = from.weight.shape();
    channels_ = w[0];
    each_ = w[1] * w[2] * w[3];
  }

  /// `means`: of x's channels, to correct the bias; or empty.
  void round(const std::vector<double>& means) {
    for (std::int64_t k = 0; k < channels_; ++k) {
      const float* const w = from_.weight.data<float>() + k * each_;
      double bias = from_.bias.data<float>()[k];
      double scale = first_scale(w, bias);
      while (!fits(w, static_cast<float>(scale), bias)) scale *= 2;
      std::int8_t* const rounded = to_.weight.data<std::int8_t>() + k * each_;
      for (std::int64_t i = 0; i < each_; ++i) {
        rounded[i] = at_scale(w[i], static_cast<float>(scale));
        if (!means.empty())
          bias += (static_cast<double>(w[i]) - static_cast<double>(static_cast<float>(scale)) * rounded[i]) *
                  means[channel_of(k, i)];
      }
      to_.weight_scale.data<float>()[k] = static_cast<float>(scale);
      to_.bias.data<float>()[k] = static_cast<float>(bias);
    }
  }

 private:
  static std::int8_t at_scale(float weight, float scale) {
    const double steps = std::nearbyint(static_cast<double>(weight) / static_cast<double>(scale));
    return static_cast<std::int8_t>(std::clamp(steps, -127.0, 127.0));
  }

  /// The largest weight becomes 127, unless the bias then has more than 28 bits.
  double first_scale(const float* w, double bias) const {
    constexpr double kMostBias = 1 << 28, kLeast = std::numeric_limits<float>::min();
    double largest = 0;
    for (std::int64_t i = 0; i < each_; ++i) largest = std::max(largest, std::abs(static_cast<double>(w[i])));
    const double scale =
        std::max(largest / 127, std::abs(bias) / (static_cast<double>(x_.scale) * kMostBias));
    return scale == 0 ? 1 : std::max(scale, kLeast);
  }

  /// Whether sums fit an i32, with room for a corrected bias: see quantized::integer_bias().
  bool fits(const float* w, float scale, double bias) const {
    double absolute = 0, sum = 0;
    for (std::int64_t i = 0; i < each_; ++i) {
      const int rounded = at_scale(w[i], scale);
      absolute += std::abs(rounded);
      sum += rounded;
    }
    const double all = std::abs(bias) / (static_cast<double>(x_.scale) * static_cast<double>(scale)) +
                       x_.zero * std::abs(sum) + 255 * (absolute + 0.5 * static_cast<double>(each_));
    return all <= std::numeric_limits<std::int32_t>::max();
  }

  /// The channel of x that weight i of result k is for.
  std::size_t channel_of(std::int64_t k, std::int64_t i) const {
    const std::int64_t inputs = from_.weight.dim(3), group = k / (channels_ / from_.conv.groups);
    return static_cast<std::size_t>(group * inputs + i % inputs);
  }

  const Op &from_, &to_;
  const Quantizer x_;
  std::int64_t channels_, each_;
};

/// The function of all 256 values.
void fill_table(const Graph& graph, const Op& op) {
  const Quantizer x = quantizer_of(graph, graph.values[at(op.inputs[0])]),
                  y = quantizer_of(graph, graph.values[at(op.output)]);
  std::vector<float> numbers;
  for (int i = 0; i < 256; ++i) numbers.push_back(x.scale * static_cast<float>(i - x.zero));
  const Tensor all = Tensor::from(numbers, {256});
  const Tensor results = contiguous(reshape(quantized::replay(op, {&all, 1}, 1), {256}));
  kernels::quantize(cpu_context(), results, y, op.table);
}

void check(const Quantizer& quantizer, const std::string& name) {
  ATH_CHECK(
      std::isfinite(quantizer.scale) && quantizer.scale > 0 && quantizer.zero >= 0 && quantizer.zero <= 255,
      "quantize: a quantizer must have a finite scale > 0 and a zero in [0, 255], but that chosen for '{}' "
      "has {} and {}",
      name, quantizer.scale, quantizer.zero);
}

}  // namespace

Quantizer min_max_quantizer(const ObservedValue& value) {
  const double low = std::min(0.0, static_cast<double>(value.min)),
               high = std::max(0.0, static_cast<double>(value.max));
  if (low == high) return {};
  const auto scale = static_cast<float>(std::max((high - low) / 255, 1e-30));
  return {scale, static_cast<std::int32_t>(
                     std::clamp(std::nearbyint(-low / static_cast<double>(scale)), 0.0, 255.0))};
}

std::unique_ptr<QuantizedNetwork> quantize(const Calibration& calibration, const QuantizeOptions& options) {
  ATH_CHECK(calibration.images() > 0, "quantize: the calibration must have seen images, but has seen none");
  ATH_CHECK(options.choose, "quantize: there must be a function that chooses quantizers");
  check_names(calibration, options.keep_f32);
  const auto kept = [&](const Op& product) {
    return std::find(options.keep_f32.begin(), options.keep_f32.end(), product.name) !=
           options.keep_f32.end();
  };
  const Graph& in_f32 = calibration.graph();
  Graph graph = int8_graph(in_f32, kept);
  const Observed observed(calibration);
  const std::vector<ObservedValue> seen = seen_by_quantizer(graph, observed);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const Quantizer chosen = options.choose(seen[i]);
    check(chosen, graph.quantizers[i].name);
    set(graph.quantizers[i], chosen);
  }
  raise_scales(graph, in_f32);
  for (const Op& op : graph.ops) {
    if (op.in_int8()) {
      const Op& from = *in_f32.op_named(op.name);
      const Value& x = graph.values[at(op.inputs[0])];
      Weights(from, op, quantizer_of(graph, x))
          .round(options.correct_bias ? observed.of(x.name).channel_means : std::vector<double>());
    } else if (op.table.defined()) {
      fill_table(graph, op);
    }
  }
  std::unique_ptr<QuantizedNetwork> network(new QuantizedNetwork(std::move(graph), calibration.sample()));
  network->check();
  return network;
}

}  // namespace athanor::nn
