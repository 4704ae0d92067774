#include <cmath>

#include "tests/random_ops/op.h"
#include "tests/random_ops/precision.h"

// Ops of one tensor, element by element.

namespace athanor::random_ops {
namespace {

Real sigmoid(Real x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
Real softplus(Real x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
constexpr Real kPi = 3.14159265358979323846264338327950288L;
Real normal_cdf(Real x) {
  return std::erfc(-x / std::sqrt(2.0L)) / 2;
}
Real normal_density(Real x) {
  return std::exp(-x * x / 2) / std::sqrt(2 * kPi);
}
Real inner(Real x) {  // of gelu_tanh
  return std::sqrt(2 / kPi) * (x + 0.044715L * x * x * x);
}

// How the derivative changes with y, for ops whose gradient is made of y as it was kept.
Real change_with_result(const std::string& op, Real y, Real slope) {
  if (op == "tanh") return 2 * std::fabs(y);
  if (op == "sigmoid") return std::fabs(1 - 2 * y);
  if (op == "exp") return 1;
  if (op == "sqrt") return std::fabs(slope / y);
  if (op == "rsqrt") return 3 * std::fabs(slope / y);
  return 0;
}

// What the result may be off by, beside its own rounding, and its derivative, in roundings: of the formula
// x (1 + erf(x / sqrt(2))) / 2, and that with tanh, which lose digits where both terms of the sum cancel; and
// of x g(x) where g(x) is denormal.
Real lost_by_formula(const std::string& op, Real x) {
  if (op == "gelu" || op == "gelu_tanh") return std::fabs(x);
  if ((op != "silu" && op != "mish") || std::isinf(x)) return 0;
  return std::fabs(x) * precision().smallest / precision().epsilon;
}
// The derivative of x g(x) is g + x g', whose terms cancel where it is 0: the sum of their magnitudes.
Real lost_by_derivative(const std::string& op, Real x) {
  if (op == "gelu" || op == "gelu_tanh") return 1 + std::fabs(x);
  if (std::isinf(x)) return 0;
  if (op == "silu") return sigmoid(x) * (1 + std::fabs(x) * sigmoid(-x)) + lost_by_formula(op, x);
  if (op != "mish") return 0;
  const Real t = std::tanh(softplus(x));
  return t + std::fabs(x) * sigmoid(x) * (1 - t * t) + lost_by_formula(op, x);
}

Array unary(Given& given) {
  const Scalar& op = scalars().at(given.op());
  const Array x = given.in("x");
  return generate(x.shape, [&](const Index& i) {
    const Real at = x.at(i).value(), y = op.f(at), slope = op.derivative(at);
    const Real of_kept = std::fabs(y) * precision().kept * change_with_result(given.op(), y, slope);
    const Edge edge{x.at(i), slope,
                    (std::isfinite(of_kept) ? of_kept : 0) + lost_by_derivative(given.op(), at)};
    return Tape::current().record(y, std::fabs(y) + lost_by_formula(given.op(), at), std::span(&edge, 1));
  });
}

// A function of x and the op's attributes.
template <class F, class D> Array scalar_op(Given& given, const F& f, const D& derivative) {
  const Array x = given.in("x");
  return generate(x.shape, [&](const Index& i) { return apply(x.at(i), f, derivative); });
}

Array affine(Given& given) {
  const Real scale = given.attribute("scale", 1.0), shift = given.attribute("shift", 0.0);
  const Array x = given.in("x");
  return generate(x.shape, [&](const Index& i) { return x.at(i) * Var(scale) + Var(shift); });
}
Array leaky_relu(Given& given) {
  const Real slope = given.attribute("slope", 0.01);
  return scalar_op(
      given, [=](Real x) { return x > 0 ? x : slope * x; }, [=](Real x) { return x > 0 ? 1 : slope; });
}
Array elu(Given& given) {
  const Real alpha = given.attribute("alpha", 1.0);
  return scalar_op(
      given, [=](Real x) { return x >= 0 ? x : alpha * std::expm1(x); },
      [=](Real x) { return x > 0 ? 1 : alpha * std::exp(x); });
}
Array softplus_op(Given& given) {
  const Real beta = given.attribute("beta", 1.0), threshold = given.attribute("threshold", 20.0);
  const Array x = given.in("x");
  return generate(x.shape, [&](const Index& i) {
    const Var z = x.at(i) * Var(beta);
    return z.value() > threshold ? x.at(i) : apply(z, softplus, sigmoid) / Var(beta);
  });
}
Array clamp(Given& given) {
  const bool has_low = given.given("low"), has_high = given.given("high");
  const Real low = given.attribute("low", 0.0), high = given.attribute("high", 0.0);
  return scalar_op(
      given,
      [=](Real x) {
        const Real above = has_low && x < low ? low : x;
        return has_high && above > high ? high : above;
      },
      [=](Real x) {
        return (!has_low || x > low) && (!has_high || x < high) && !std::isnan(x) ? 1.0L : 0.0L;
      });
}

void draw_unary(Case& c) {
  c.input("x", c.draw.shape(0, 4), {.wide = c.draw.chance(0.5)});
}
void draw_affine(Case& c) {
  draw_unary(c);
  c.set("scale", c.draw.number(-3, 3));
  c.set("shift", c.draw.number(-3, 3));
}
void draw_leaky_relu(Case& c) {
  draw_unary(c);
  c.set("slope", c.draw.number(0, 1));
}
void draw_elu(Case& c) {
  draw_unary(c);
  c.set("alpha", c.draw.number(0.125, 2));
}
void draw_softplus(Case& c) {
  draw_unary(c);
  c.set("beta", c.draw.number(0.125, 3));
  c.set("threshold", c.draw.choose({20.0, 2.0}));
}
void draw_clamp(Case& c) {
  c.input("x", c.draw.shape(0, 4), {.low = c.dtype == DType::u8 ? 0.0 : -9.0, .high = 9});
  const bool both = c.draw.chance(0.6), low = both || c.draw.chance(0.5);
  const auto bound = [&] {
    return is_floating(c.dtype) ? c.draw.number(-4, 4) : static_cast<double>(c.draw.integer(0, 4));
  };
  if (low) c.set("low", bound());
  if (both || !low) c.set("high", bound());
}

template <class F> std::map<std::string, Scalar> with_others(F&& first) {
  first["log"] = {[](Real x) { return std::log(x); }, [](Real x) { return 1 / x; }};
  first["sqrt"] = {[](Real x) { return std::sqrt(x); }, [](Real x) { return 1 / (2 * std::sqrt(x)); }};
  first["rsqrt"] = {[](Real x) { return 1 / std::sqrt(x); },
                    [](Real x) { return -std::pow(1 / std::sqrt(x), 3.0L) / 2; }};
  first["square"] = {[](Real x) { return x * x; }, [](Real x) { return 2 * x; }};
  first["abs"] = {[](Real x) { return std::fabs(x); },
                  [](Real x) { return x > 0   ? 1.0L
                                      : x < 0 ? -1.0L
                                              : 0.0L; }};
  first["neg"] = {[](Real x) { return -x; }, [](Real) { return -1.0L; }};
  first["exp"] = {[](Real x) { return std::exp(x); }, [](Real x) { return std::exp(x); }};
  first["tanh"] = {[](Real x) { return std::tanh(x); },
                   [](Real x) { return 1 / (std::cosh(x) * std::cosh(x)); }};
  first["sigmoid"] = {sigmoid, [](Real x) { return sigmoid(x) * sigmoid(-x); }};
  return first;
}

}  // namespace

const std::map<std::string, Scalar>& scalars() {
  static const std::map<std::string, Scalar> table = with_others(std::map<std::string, Scalar>{
      {"relu", {[](Real x) { return x < 0 ? 0 : x; }, [](Real x) { return x <= 0 ? 0.0L : 1.0L; }}},
      {"relu6",
       {[](Real x) { return x < 0   ? 0
                            : x > 6 ? 6
                                    : x; },
        [](Real x) { return x <= 0 || x >= 6 ? 0.0L : 1.0L; }}},
      {"gelu",
       {[](Real x) { return x * normal_cdf(x); },
        [](Real x) { return normal_cdf(x) + x * normal_density(x); }}},
      {"gelu_tanh",
       {[](Real x) { return x * sigmoid(2 * inner(x)); },
        [](Real x) {
          if (std::isinf(x)) return x > 0 ? 1.0L : 0.0L;  // the limits
          const Real s = sigmoid(2 * inner(x));
          const Real slope = std::sqrt(2 / kPi) * (1 + 3 * 0.044715L * x * x);
          return s + 2 * x * s * sigmoid(-2 * inner(x)) * slope;
        }}},
      {"silu",
       {[](Real x) { return x * sigmoid(x); }, [](Real x) { return sigmoid(x) * (1 + x * sigmoid(-x)); }}},
      {"hardsigmoid",
       {[](Real x) { return x <= -3  ? 0
                            : x >= 3 ? 1
                                     : (x + 3) / 6; },
        [](Real x) { return x > -3 && x < 3 ? 1 / 6.0L : 0; }}},
      {"hardswish",
       {[](Real x) { return x <= -3  ? x * 0
                            : x >= 3 ? x
                                     : x * (x + 3) / 6; },
        [](Real x) { return x <= -3  ? 0
                            : x >= 3 ? 1
                                     : x / 3 + 0.5L; }}},
      {"mish",
       {[](Real x) { return x * std::tanh(softplus(x)); },
        [](Real x) {
          const Real t = std::tanh(softplus(x));
          return t + x * sigmoid(x) * (1 - t * t);
        }}},
  });
  return table;
}

Var activate(Var x, const std::string& name) {
  if (name == "none") return x;
  const Scalar& op = scalars().at(name);
  if (lost_by_derivative(name, 1) == 0) return apply(x, op.f, op.derivative);
  const Real at = x.value(), y = op.f(at);
  const Edge edge{x, op.derivative(at), lost_by_derivative(name, at) + x.error()};  // |f''| is less than 1
  return Tape::current().record(y, std::fabs(y) + lost_by_formula(name, at), std::span(&edge, 1));
}

RandomOps pointwise_ops() {
  RandomOps ops = {
      {"affine", Types::floating, draw_affine, affine},
      {"leaky_relu", Types::floating, draw_leaky_relu, leaky_relu},
      {"elu", Types::floating, draw_elu, elu},
      {"softplus", Types::floating, draw_softplus, softplus_op},
      {"clamp", Types::numbers, draw_clamp, clamp},
  };
  for (const auto& [name, scalar] : scalars()) {
    const bool of_integers = name == "abs" || name == "neg";
    ops.push_back({name, of_integers ? Types::numbers : Types::floating, draw_unary, unary});
  }
  return ops;
}

}  // namespace athanor::random_ops
