// Random calls with packed weights, whatever code they take, against the same in f64 without.
//
//     random_packed --cases 100000 --seed 3
//     random_packed --seed 3 --case 123
//     random_packed --weekly --cases 100000
//
// The second runs one case alone, as a failure names it. The third draws other cases every week.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "autograd/conv.h"
#include "autograd/conv_norm.h"
#include "autograd/elementwise.h"
#include "autograd/grad_mode.h"
#include "autograd/matmul.h"
#include "autograd/packed_model.h"
#include "autograd/pool.h"
#include "autograd/shape.h"
#include "tensor/base/error.h"
#include "tests/random_ops/draw.h"
#include "tests/random_ops/weekly.h"
#include "tests/support/activations.h"
#include "tests/support/exact_values.h"

namespace {

using namespace athanor;
using random_ops::Draw;

// Operands are multiples of 1/8, and factors powers of 2, so sums are exact in any order: a result is right,
// or off by 1/128 and more. Winograd's transforms and activations round by less than this.
constexpr double kTolerance = 1e-3;
constexpr std::int64_t kMaxProducts = 300'000;  // of a convolution, so that a case takes milliseconds

Tensor draw_values(Draw& draw, const Shape& shape) {
  return test::values(shape, DType::f32, static_cast<int>(draw.integer(0, 1'000'000)));
}

/// Weights with what is folded into them; y = (w x + bias) scale + shift.
struct Weights {
  Tensor w, bias, scale, shift;
  PackedModel packed;

  Weights(Draw& draw, const Shape& shape, bool may_scale = true)
      : w(draw_values(draw, shape)),
        bias(draw.chance(0.5) ? draw_values(draw, {shape[0]}) : Tensor()),
        scale(draw.chance(0.4) && may_scale ? draw_scale(draw, shape[0]) : Tensor()),
        shift(scale.defined() ? draw_values(draw, {shape[0]}) : Tensor()) {}

  /// Of as many channels; a raw tensor, as weights are.
  Tensor unit_variance() const {
    return Tensor::from(std::vector<float>(static_cast<std::size_t>(w.dim(0)), 1.0f), {w.dim(0)});
  }
  std::string describe() const {
    return fmt::format("w {}{}{}", w.shape(), bias.defined() ? ", bias" : "",
                       scale.defined() ? ", scale" : "");
  }

 private:
  static Tensor draw_scale(Draw& draw, std::int64_t rows) {
    std::vector<float> factors(static_cast<std::size_t>(rows));
    for (float& factor : factors) factor = draw.choose({0.5f, 1.0f, 2.0f, -1.0f});
    return Tensor::from(factors, {rows});
  }
};

Tensor wide(const Tensor& x) {
  return cast(x, DType::f64);
}
/// What becomes of the sums w x, in f64.
Tensor finished(Tensor y, const Weights& weights, const Tensor& residual, Activation activation) {
  if (weights.bias.defined()) y = y + wide(weights.bias);
  if (weights.scale.defined()) y = y * wide(weights.scale) + wide(weights.shift);
  if (residual.defined()) y = y + wide(residual);
  return test::activated(activation, y);
}

/// What is wrong with y, or nothing.
std::string compare(const Tensor& y, const Tensor& wanted) {
  if (y.shape() != wanted.shape()) return fmt::format("y must be {}, but is {}", wanted.shape(), y.shape());
  const std::vector<double> is = y.to_vector(), must = wanted.to_vector();
  for (std::size_t i = 0; i < is.size(); ++i) {
    if (!(std::abs(is[i] - must[i]) <= kTolerance))
      return fmt::format("y[{}] must be {}, but is {}", i, must[i], is[i]);
  }
  return "";
}

// Convolutions ---------------------------------------------------------------------------------------------

struct Filters {
  Shape w;
  Conv2dParams params;
};

std::int64_t draw_channels(Draw& draw) {
  return draw.chance(0.4) ? draw.choose<std::int64_t>({8, 16, 32, 48, 64}) : draw.integer(1, 70);
}
std::int64_t draw_taps(Draw& draw) {
  return draw.chance(0.3) ? draw.integer(1, 11) : draw.choose<std::int64_t>({1, 3, 3, 5, 7});
}

/// Few filters or many, groups of any size, one channel each, and what our own code is for.
Filters draw_filters(Draw& draw) {
  Conv2dParams params;
  if (draw.chance(0.1)) {  // Winograd's
    for (std::int64_t& padding : params.padding) padding = draw.integer(0, 2);
    return {{16 * draw.integer(1, 4), 3, 3, 16 * draw.integer(1, 4)}, params};
  }
  const bool square = draw.chance(0.6), many = draw.chance(0.02);
  const std::int64_t rows = draw_taps(draw), columns = square ? rows : draw_taps(draw);
  Shape w{draw_channels(draw), rows, columns, draw_channels(draw)};
  if (many) {  // more filters than pixels
    w = {128 + 16 * draw.integer(0, 1), 3, 3, 128};
  } else if (draw.chance(0.25)) {
    params.groups = draw.integer(2, 8);
    w[3] = draw.integer(1, 9);
    w[0] = params.groups * draw.integer(1, 9);
  } else if (draw.chance(0.25)) {  // depthwise
    params.groups = draw_channels(draw);
    w[3] = 1;
    w[0] = params.groups * draw.integer(1, 2);
  }
  const bool one_stride = draw.chance(0.5);
  for (int axis = 0; axis < 2; ++axis) {
    params.stride[axis] = one_stride ? 1 : draw.integer(1, 6);
    params.dilation[axis] = draw.chance(0.75) ? 1 : draw.integer(1, 3);
    // Up to where outputs read padding alone.
    const std::int64_t extent = (w[1 + axis] - 1) * params.dilation[axis] + 1;
    params.padding[axis] = draw.chance(0.5) ? w[1 + axis] / 2 : draw.integer(0, extent + 1);
  }
  if (one_stride && draw.chance(0.1)) {
    params.same_padding = true;
    params.padding[0] = params.padding[1] = 0;
  }
  return {w, params};
}

/// Images that the filters fit into with their padding, often narrower than a filter; none if they would take
/// too long.
std::optional<Shape> draw_images(Draw& draw, const Filters& filters) {
  const auto& [w, params] = filters;
  const bool many = w[0] >= 128;
  Shape x{draw.integer(1, many ? 1 : 3), 0, 0, w[3] * params.groups};
  for (int axis = 0; axis < 2; ++axis) {
    const std::int64_t extent = (w[1 + axis] - 1) * params.dilation[axis] + 1;
    const std::int64_t least = params.same_padding ? 1 : extent - 2 * params.padding[axis];
    x[1 + axis] = std::max<std::int64_t>(least, 1) + draw.integer(0, many ? 2 : 12);
  }
  const std::int64_t products = conv2d_shape(x, w, params).numel() * w[1] * w[2] * w[3];
  return many || products <= kMaxProducts ? std::optional(x) : std::nullopt;
}

/// Scale and shift are those of a norm in evaluation, whose mean is 0 and variance 1.
Tensor run_conv(const Tensor& x, const Weights& weights, Conv2dParams params, const Tensor& residual,
                bool pools) {
  const Tensor mean = Tensor::zeros({weights.w.dim(0)}), var = weights.unit_variance();
  const auto run = [&] {
    const InferenceMode inference(weights.packed);
    if (pools) return conv_pool_relu(x, {weights.w, weights.bias, params});
    if (!weights.scale.defined() && !residual.defined()) return conv2d(x, weights.w, weights.bias, params);
    const BatchNormParams norm{.eps = 0, .activation = params.activation};
    Conv2dParams linear = params;
    linear.activation = Activation::none;
    return conv_norm(x, {weights.w, weights.bias, linear},
                     {weights.scale, weights.shift, mean, var, false, norm}, residual);
  };
  try {
    return run();
  } catch (const BackendError&) {  // what that implementation has no code for
    params.impl = ConvImpl::automatic;
    return run();
  }
}

/// Says what is wrong, and with which call; or nothing. Images of other sizes share the weights.
std::string try_conv(Draw& draw) {
  while (true) {
    const Filters filters = draw_filters(draw);
    Conv2dParams params = filters.params;
    const Weights weights(draw, filters.w);
    std::string wrong;
    int calls = 0;
    for (const int most = draw.chance(0.3) ? 2 : 1; calls < most && wrong.empty(); ++calls) {
      const std::optional<Shape> shape = draw_images(draw, filters);
      if (!shape) break;
      const Shape y = conv2d_shape(*shape, filters.w, params);
      const bool pools = y[1] > 1 && y[2] > 1 && draw.chance(0.15) && !weights.scale.defined(),
                 adds = !pools && draw.chance(0.5);
      params.activation =
          pools ? Activation::none
                : draw.choose({Activation::none, Activation::none, Activation::relu, Activation::relu,
                               Activation::gelu, Activation::silu, Activation::relu6, Activation::hardswish});
      params.impl =
          draw.chance(0.7)
              ? ConvImpl::automatic
              : draw.choose({ConvImpl::reference, ConvImpl::vendor, ConvImpl::direct, ConvImpl::winograd});
      const Tensor x = draw_values(draw, *shape), residual = adds ? draw_values(draw, y) : Tensor();
      Conv2dParams plain = params;
      plain.activation = Activation::none;
      plain.impl = ConvImpl::reference;
      const Tensor sums = conv2d(wide(x), wide(weights.w), {}, plain);
      Tensor wanted = finished(sums, weights, residual, params.activation);
      if (pools) wanted = relu(max_pool2d(wanted));
      wrong = compare(run_conv(x, weights, params, residual, pools), wanted);
      if (wrong.empty()) continue;
      wrong += fmt::format(
          ": conv{} x {}, {}{}, stride {}, {}, padding {}, {}{}, dilation {}, {}, groups {}, {}, {}",
          pools ? " and pool" : "", *shape, weights.describe(), adds ? ", residual" : "", params.stride[0],
          params.stride[1], params.padding[0], params.padding[1], params.same_padding ? " (same)" : "",
          params.dilation[0], params.dilation[1], params.groups, test::name_of(params.activation),
          name_of(params.impl));
    }
    if (calls > 0) return wrong;
  }
}

// Linear layers --------------------------------------------------------------------------------------------

std::string try_linear(Draw& draw) {
  const Weights weights(draw, {draw_channels(draw), draw.chance(0.1) ? 0 : draw.integer(1, 300)}, false);
  const Activation activation = draw.choose({Activation::none, Activation::relu, Activation::gelu,
                                             Activation::silu, Activation::relu6, Activation::hardswish});
  std::string wrong;
  for (int calls = draw.chance(0.3) ? 2 : 1; calls > 0 && wrong.empty(); --calls) {
    const Shape shape{draw.size(70), weights.w.dim(1)};
    const Tensor x = draw_values(draw, shape);
    const Tensor wanted = finished(linear(wide(x), wide(weights.w)), weights, {}, activation);
    const InferenceMode inference(weights.packed);
    wrong = compare(linear(x, weights.w, weights.bias, activation), wanted);
    if (!wrong.empty())
      wrong += fmt::format(": linear x {}, {}, {}", shape, weights.describe(), test::name_of(activation));
  }
  return wrong;
}

// ----------------------------------------------------------------------------------------------------------

int run(int argc, char** argv) {
  std::int64_t cases = 2000;
  std::uint64_t seed = 0, first = 0;
  bool weekly = false;
  CLI::App app("Runs convolutions and linear layers with packed weights, and compares with f64 without");
  app.add_option("--cases", cases, "How many")->capture_default_str();
  app.add_option("--seed", seed, "Of all random choices")->capture_default_str();
  app.add_flag("--weekly", weekly, "The week's number as --seed, another one every week");
  const auto* one = app.add_option("--case", first, "That case alone");
  CLI11_PARSE(app, argc, argv);
  if (weekly) seed = random_ops::seed_of_the_week();
  if (one->count() > 0) cases = 1;

  const InferenceMode inference;
  std::int64_t failures = 0;
  for (std::uint64_t number = first; number < first + static_cast<std::uint64_t>(cases); ++number) {
    Draw draw(seed, "packed", number);
    std::string wrong;
    try {
      wrong = draw.chance(0.15) ? try_linear(draw) : try_conv(draw);
    } catch (const std::exception& error) {
      wrong = std::string("threw ") + error.what();
    }
    if (wrong.empty() || ++failures > 50) continue;
    std::printf("--seed %llu --case %llu: %s\n", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(number), wrong.c_str());
  }
  std::printf("%lld cases, %lld wrong\n", static_cast<long long>(cases), static_cast<long long>(failures));
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try { return run(argc, argv); } catch (const std::exception& error) {
  std::fprintf(stderr, "random_packed: %s\n", error.what());
  return 2;
}
