#include <cmath>

#include "tests/random_ops/op.h"

// Losses over pairs of elements.

namespace athanor::random_ops {
namespace {

void draw_reduction(Case& c) {
  c.set("reduction", std::string(c.draw.choose({"mean", "sum", "none"})));
}
void draw_distance(Case& c) {
  const Shape shape = c.draw.shape(0, 3);
  c.input("a", shape);
  c.input("b", shape);
  draw_reduction(c);
}
void draw_smooth_l1(Case& c) {
  draw_distance(c);
  c.set("beta", c.draw.choose({0.0, 0.125, 1.0, 2.5}));
}
void draw_huber(Case& c) {
  draw_distance(c);
  c.set("delta", c.draw.choose({0.125, 1.0, 2.5}));
}
void draw_kl(Case& c) {
  const Shape shape = c.draw.shape(1, 3);
  c.input("input", shape, {.low = -5, .high = 0});
  const bool logarithms = c.set("log_target", c.draw.chance(0.5));
  const Values values =
      logarithms ? Values{.low = -5, .high = 0} : Values{.low = 0, .high = 1, .positive = true};
  c.input("target", shape, values);
  c.set("reduction", std::string(c.draw.choose({"mean", "batchmean", "sum", "none"})));
}
void draw_bce(Case& c) {
  const Shape shape = c.draw.shape(0, 3);
  // What is not finite times the part of a target that is 0 depends on the formula.
  Values logits = logit_values(c.draw, 6);
  logits.special = !c.draw.nonfinite;
  c.input("logits", shape, logits);
  if (c.draw.chance(0.3)) {
    c.set("target", c.draw.choose({0.0, 1.0, 0.25}));
  } else {
    c.input("target", shape, {.low = 0, .high = 1, .special = false});
  }
  for (const char* name : {"weight", "pos_weight"}) {
    const Values values{.low = 0.1, .high = 3, .special = false};
    if (c.draw.chance(0.4)) c.give(name, c.draw.dense(c.draw.broadcasting_to(shape), c.wide_dtype(), values));
  }
  draw_reduction(c);
}

// A function of the difference, and its derivative.
template <class F, class D> Array distance(Given& given, const F& f, const D& derivative) {
  const Array a = given.in("a"), b = given.in("b");
  given.result = given.result == DType::f64 ? DType::f64 : DType::f32;
  Array losses = {a.shape, {}};
  for (std::size_t i = 0; i < a.v.size(); ++i) losses.v.push_back(apply(a.v[i] - b.v[i], f, derivative));
  return reduce_losses(losses, given.attribute<std::string>("reduction", "mean"));
}
Real sign(Real x) {
  return x > 0 ? 1 : x < 0 ? -1 : 0;
}
Array mse(Given& given) {
  return distance(
      given, [](Real d) { return d * d; }, [](Real d) { return 2 * d; });
}
Array l1(Given& given) {
  return distance(
      given, [](Real d) { return std::fabs(d); }, sign);
}
Array smooth_l1(Given& given) {
  const Real beta = given.attribute("beta", 1.0);
  return distance(
      given, [=](Real d) { return std::fabs(d) < beta ? d * d / (2 * beta) : std::fabs(d) - beta / 2; },
      [=](Real d) { return std::fabs(d) < beta         ? d / beta
                           : std::isnan(d) && beta > 0 ? d
                                                       : sign(d); });
}
Array huber(Given& given) {
  const Real delta = given.attribute("delta", 1.0);
  return distance(
      given, [=](Real d) { return std::fabs(d) < delta ? d * d / 2 : delta * (std::fabs(d) - delta / 2); },
      [=](Real d) { return std::fabs(d) < delta ? d
                           : std::isnan(d)      ? d
                                                : delta * sign(d); });
}

Array kl(Given& given) {
  const Array input = given.in("input"), target = given.in("target");
  given.result = given.result == DType::f64 ? DType::f64 : DType::f32;
  const bool logarithms = given.attribute("log_target", false);
  const auto term = [&](Var x, Var t) {
    const Real from = x.value(), to = t.value();
    if (logarithms) return exp(t) * (t - x);
    // Of a target of 0, 0 for any finite input.
    const Real entropy = to == 0 ? 0 : to * std::log(to), slope = std::log(to) + 1 - from;
    const Real steps = std::fabs(std::log(to)) + 1 + std::fabs(from);
    return Tape::current().record(entropy - to * from, std::fabs(entropy) + std::fabs(to * from),
                                  std::initializer_list<Edge>{{x, -to}, {t, slope, steps}});
  };
  Array losses = {input.shape, {}};
  for (std::size_t i = 0; i < input.v.size(); ++i) losses.v.push_back(term(input.v[i], target.v[i]));
  const std::string reduction = given.attribute<std::string>("reduction", "mean");
  if (reduction != "batchmean") return reduce_losses(losses, reduction);
  return {{}, {sum(losses.v) / Var(static_cast<Real>(input.shape[0]))}};
}

// log(1 / sigmoid(x)) = log(1 + e^-x), without overflow.
Var minus_log_sigmoid(Var x) {
  return apply(
      x, [](Real v) { return v > 0 ? std::log1p(std::exp(-v)) : std::log1p(std::exp(v)) - v; },
      [](Real v) { return -scalars().at("sigmoid").f(-v); });
}

Array bce(Given& given) {
  const Array logits = given.in("logits"), weight = given.constant("weight"),
              of_positive = given.constant("pos_weight");
  const Array target = given.has("target") ? given.in("target") : Array{};
  given.result = given.result == DType::f64 ? DType::f64 : DType::f32;
  const int rank = logits.shape.rank();
  const Array losses = generate(logits.shape, [&](const Index& i) {
    const Var x = logits.at(i), t = target.v.empty() ? Var(given.attribute("target", 1.0)) : target.at(i);
    const Var positive = t * minus_log_sigmoid(x), negative = (Var(1) - t) * minus_log_sigmoid(-x);
    const Var loss =
        (of_positive.v.empty() ? positive : positive * of_positive.broadcast(i, rank)) + negative;
    return weight.v.empty() ? loss : loss * weight.broadcast(i, rank);
  });
  return reduce_losses(losses, given.attribute<std::string>("reduction", "mean"));
}

}  // namespace

RandomOps pair_loss_ops() {
  return {
      {"mse_loss", Types::floating, draw_distance, mse},
      {"l1_loss", Types::floating, draw_distance, l1},
      {"smooth_l1_loss", Types::floating, draw_smooth_l1, smooth_l1},
      {"huber_loss", Types::floating, draw_huber, huber},
      {"kl_div", Types::floating, draw_kl, kl},
      {"bce_with_logits", Types::floating, draw_bce, bce},
  };
}

}  // namespace athanor::random_ops
