#include <cmath>

#include "tests/random_ops/op.h"

// Norms: batch, layer, group and instance.

namespace athanor::random_ops {
namespace {

void draw_parameters(Case& c, const Shape& shape) {
  if (c.draw.chance(0.7)) c.give("gamma", c.draw.dense(shape, c.wide_dtype(), {.special = false}));
  if (c.draw.chance(0.7)) c.give("beta", c.draw.dense(shape, c.wide_dtype(), {.special = false}));
}
void draw_eps(Case& c) {
  c.set("eps", c.draw.choose({0.0009765625, 0.125, 1e-5, 1e-12}));
}
// Around 0, far from it, or all alike.
Values draw_level(Case& c, bool special = true) {
  const double kind = c.draw.uniform(0, 1);
  Values values{.special = special};
  if (kind < 0.1) values.low = values.high = c.draw.number(-4, 4);
  if (kind > 0.9) values.low += 1e4, values.high += 1e4;
  return values;
}
void draw_batch_norm(Case& c) {
  const Shape leading = c.draw.shape(1, 3, 60);
  const std::int64_t channels = c.draw.size(c.draw.chance(0.2) ? 33 : 6, 1);
  Shape shape = leading;
  shape.push_back(channels);
  if (leading.numel() == 1) shape[0] = 2;
  const bool training = c.set("training", leading.numel() > 0 && c.draw.chance(0.6));
  // Running statistics make a gradient of what is not finite NaN, though x is no part of it.
  c.input("x", shape, draw_level(c, training || !c.draw.nonfinite));
  draw_parameters(c, {channels});
  const Values positive{.low = 0.25, .high = 3, .special = false};
  c.give("running_mean", c.draw.dense({channels}, c.wide_dtype(), {.special = false}));
  c.give("running_var", c.draw.dense({channels}, c.wide_dtype(), positive));
  if (training) c.set("momentum", c.draw.choose({0.125, 0.5, 1.0}));
  draw_eps(c);
  if (c.draw.chance(0.4)) c.input("residual", shape, {.special = training || !c.draw.nonfinite});
  if (c.draw.chance(0.4))
    c.set("activation", std::string(c.draw.choose({"relu", "gelu", "silu", "relu6", "hardswish"})));
}
void draw_layer_norm(Case& c) {
  Shape shape = c.draw.shape(1, 4, 300);
  const auto axes = c.set("axes", static_cast<int>(c.draw.integer(1, shape.rank())));
  Shape inner;
  for (int i = shape.rank() - axes; i < shape.rank(); ++i)
    inner.push_back(shape[i] = std::max<std::int64_t>(shape[i], 1));
  c.input("x", shape, draw_level(c));
  draw_parameters(c, inner);
  draw_eps(c);
}
void draw_images(Case& c, std::int64_t channels) {
  Shape shape = {c.draw.size(3, 1)};
  for (auto i = c.draw.integer(0, 2); i > 0; --i) shape.push_back(c.draw.size(5, 1));
  shape.push_back(channels);
  c.input("x", shape, draw_level(c));
  draw_parameters(c, {channels});
  draw_eps(c);
}
void draw_group(Case& c) {
  const std::int64_t groups = c.draw.size(4, 1), channels = groups * c.draw.integer(2, 7);
  c.set("groups", groups);
  draw_images(c, channels);
}
void draw_instance(Case& c) {
  const std::int64_t channels = c.draw.size(c.draw.chance(0.2) ? 33 : 6, 1);
  const Shape shape = {c.draw.size(3, 1), c.draw.size(5, 2), c.draw.size(4, 1), channels};
  c.input("x", shape, draw_level(c));
  draw_parameters(c, {channels});
  draw_eps(c);
}

struct Moments {
  Var mean, variance;  // the biased one
};
Moments moments(const std::vector<Var>& x) {
  const Var n(static_cast<Real>(x.size())), mean = sum(x) / n;
  std::vector<Var> deviations;
  for (const Var v : x) deviations.push_back(v - mean);
  return {mean, dot(deviations, deviations) / n};
}
Var normalised(Var x, const Moments& of, Real eps) {
  return (x - of.mean) / sqrt(of.variance + Var(eps));
}
Var scaled(Var x, const Array& gamma, const Array& beta, std::size_t at) {
  const Var product = gamma.v.empty() ? x : x * gamma.v[at];
  return beta.v.empty() ? product : product + beta.v[at];
}

// The statistics of every channel: those of the batch, or the running ones. Moves these.
std::vector<Moments> batch_moments(Given& given, const Array& x, Real momentum) {
  const std::int64_t channels = x.shape[x.shape.rank() - 1];
  const Array mean = given.constant("running_mean"), variance = given.constant("running_var");
  given.buffers["running_mean"] = mean;
  given.buffers["running_var"] = variance;
  std::vector<Moments> all;
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    if (!given.attribute("training", true)) {
      all.push_back({mean.v[c], variance.v[c]});
      continue;
    }
    std::vector<Var> values;
    for (std::size_t i = c; i < x.v.size(); i += static_cast<std::size_t>(channels)) values.push_back(x.v[i]);
    all.push_back(values.empty() ? Moments{Var(0), Var(0)} : moments(values));
    if (values.empty()) continue;
    const auto n = static_cast<Real>(values.size());
    const Var unbiased = all.back().variance * Var(n / (n - 1));
    const auto moved = [&](Var old, Var now) { return old * Var(1 - momentum) + now * Var(momentum); };
    given.buffers["running_mean"].v[c] = moved(mean.v[c], all.back().mean);
    given.buffers["running_var"].v[c] = moved(variance.v[c], unbiased);
  }
  return all;
}

Array batch_norm_op(Given& given) {
  const Array x = given.in("x"), gamma = given.in("gamma"), beta = given.in("beta");
  const Array residual = given.in("residual");
  const std::vector<Moments> of = batch_moments(given, x, given.attribute("momentum", 0.1));
  const std::string activation = given.attribute<std::string>("activation", "none");
  Array y = Array::of(x.shape);
  for (std::size_t i = 0; i < x.v.size(); ++i) {
    const std::size_t c = i % of.size();
    Var value = scaled(normalised(x.v[i], of[c], given.attribute("eps", 1e-5)), gamma, beta, c);
    if (!residual.v.empty()) value = value + residual.v[i];
    y.v[i] = activate(value, activation);
  }
  return y;
}

Array layer_norm_op(Given& given) {
  const Array x = given.in("x"), gamma = given.in("gamma"), beta = given.in("beta");
  std::size_t width = 1;
  for (int i = x.shape.rank() - given.attribute("axes", 1); i < x.shape.rank(); ++i)
    width *= static_cast<std::size_t>(x.shape[i]);
  Array y = Array::of(x.shape);
  for (std::size_t row = 0; row < x.v.size(); row += width) {
    const auto first = x.v.begin() + static_cast<std::ptrdiff_t>(row);
    const Moments of = moments({first, first + static_cast<std::ptrdiff_t>(width)});
    for (std::size_t i = 0; i < width; ++i)
      y.v[row + i] = scaled(normalised(x.v[row + i], of, given.attribute("eps", 1e-5)), gamma, beta, i);
  }
  return y;
}

Array group_norm_op(Given& given) {
  const Array x = given.in("x"), gamma = given.in("gamma"), beta = given.in("beta");
  const auto channels = static_cast<std::size_t>(x.shape[x.shape.rank() - 1]);
  const std::size_t image = x.v.size() / static_cast<std::size_t>(x.shape[0]);
  const std::size_t groups =
      given.op() == "group_norm" ? given.attribute<std::size_t>("groups", 1) : channels;
  const auto group_of = [&](std::size_t i) {
    return i / image * groups + i % channels / (channels / groups);
  };
  std::vector<std::vector<Var>> members(static_cast<std::size_t>(x.shape[0]) * groups);
  for (std::size_t i = 0; i < x.v.size(); ++i) members[group_of(i)].push_back(x.v[i]);
  std::vector<Moments> of;
  for (const auto& values : members) of.push_back(moments(values));
  Array y = Array::of(x.shape);
  for (std::size_t i = 0; i < x.v.size(); ++i)
    y.v[i] =
        scaled(normalised(x.v[i], of[group_of(i)], given.attribute("eps", 1e-5)), gamma, beta, i % channels);
  return y;
}

}  // namespace

RandomOps norm_ops() {
  return {
      {"batch_norm", Types::floating, draw_batch_norm, batch_norm_op},
      {"layer_norm", Types::floating, draw_layer_norm, layer_norm_op},
      {"group_norm", Types::floating, draw_group, group_norm_op},
      {"instance_norm", Types::floating, draw_instance, group_norm_op},
  };
}

}  // namespace athanor::random_ops
