#include <cmath>

#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "tests/random_ops/op.h"
#include "tests/random_ops/precision.h"

// Ops of two tensors that broadcast: arithmetic, comparisons, logic, where.

namespace athanor::random_ops {
namespace {

void draw_pair(Case& c, const Values& values) {
  const Shape shape = c.draw.shape(0, 4);
  c.input("a", c.draw.broadcasting_to(shape), values);
  c.input("b", c.draw.broadcasting_to(shape), values);
}
void draw_arithmetic(Case& c) {
  // Of integers, all that u8 and i32 hold, and as much as makes a product of two i64 wrap but still fits into
  // 64 significant bits.
  const double edge = c.dtype == DType::u8 ? 256 : c.dtype == DType::i32 ? 2147483648.0 : 4e9;
  if (is_floating(c.dtype)) return draw_pair(c, {.wide = c.draw.chance(0.4)});
  draw_pair(c, {.low = c.dtype == DType::u8 ? 0 : -edge, .high = edge});
}
// Quotients by denormals are infinite, and what is made of them depends on the order of steps.
void draw_div(Case& c) {
  const Shape shape = c.draw.shape(0, 4);
  c.input("a", c.draw.broadcasting_to(shape), {.wide = c.dtype != DType::f16 && c.draw.chance(0.4)});
  c.input("b", c.draw.broadcasting_to(shape), {.special = false});
}
// Few different ones: equal elements are what matters.
void draw_few(Case& c, const char* name, const Shape& shape, bool few, const Values& others) {
  if (!few || !is_floating(c.dtype)) {
    c.input(name, shape, others);
  } else {
    c.give(name, cast(c.draw.tensor(shape, DType::i32, {.low = -2, .high = 3}), c.dtype));
  }
}
void draw_few(Case& c, const char* name, const Shape& shape, bool few) {
  draw_few(c, name, shape, few, {.low = c.dtype == DType::u8 ? 0.0 : -2.0, .high = 3, .wide = !few});
}
void draw_compared(Case& c) {
  const bool few = c.draw.chance(0.5);
  const Shape shape = c.draw.shape(0, 4);
  for (const char* name : {"a", "b"}) draw_few(c, name, c.draw.broadcasting_to(shape), few);
}
void draw_comparison(Case& c) {
  if (c.dtype == DType::boolean || c.draw.chance(0.6)) return draw_compared(c);
  draw_few(c, "a", c.draw.shape(0, 4), c.draw.chance(0.7));
  c.set("number", static_cast<double>(c.draw.integer(0, 2)));
}
void draw_pow(Case& c) {
  const Values any{}, positive{.low = 0.01, .high = 9, .wide = c.draw.chance(0.3), .positive = true};
  const Values& base = c.draw.chance(0.3) ? any : positive;
  const Shape shape = c.draw.shape(0, 4);
  if (c.draw.chance(0.5)) {
    c.input("a", shape, base);
    c.set("number", c.draw.choose({0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -0.5, 2.5, -2.0}));
    return;
  }
  c.input("a", c.draw.broadcasting_to(shape), base);
  c.input("b", c.draw.broadcasting_to(shape));
}
// Few different ones, too: quotients that are whole numbers, of every sign.
void draw_floor(Case& c) {
  const Shape shape = c.draw.shape(0, 4);
  const bool few = c.draw.chance(0.4);
  const double edge = c.dtype == DType::u8 ? 256 : 60;
  const Values any{.low = is_floating(c.dtype) ? -9 : -edge, .high = is_floating(c.dtype) ? 9 : edge};
  draw_few(c, "a", c.draw.broadcasting_to(shape), few, any);
  if (is_floating(c.dtype) && c.draw.chance(0.7)) {
    draw_few(c, "b", c.draw.broadcasting_to(shape), few, {.special = c.draw.nonfinite});
  } else if (c.draw.chance(0.4)) {
    c.set("number",
          c.draw.choose({1.0, 2.0, 3.0, 7.0}) * (c.dtype != DType::u8 && c.draw.chance(0.5) ? -1 : 1));
  } else {  // integers that are not 0
    const Shape own = c.draw.broadcasting_to(shape);
    const Tensor size = c.draw.tensor(own, DType::i32, {.low = 1, .high = c.draw.chance(0.5) ? 4.0 : 100.0});
    const double sign = c.dtype != DType::u8 && c.draw.chance(0.5) ? -1 : 1;
    c.give("b", cast(mul(size, cast(full({}, sign), DType::i32)), c.dtype));
  }
}
void draw_where(Case& c) {
  const Shape shape = c.draw.shape(0, 4);
  c.give("condition", c.draw.tensor(c.draw.broadcasting_to(shape), DType::boolean));
  c.input("a", c.draw.broadcasting_to(shape), {.low = 0, .high = 9, .wide = true});
  c.input("b", c.draw.broadcasting_to(shape), {.low = 0, .high = 9, .wide = true});
}
void draw_logical(Case& c) {
  const Shape shape = c.draw.shape(0, 4);
  c.input("a", c.draw.broadcasting_to(shape), {.zeros = true});
  c.input("b", c.draw.broadcasting_to(shape), {.zeros = true});
}
void draw_logical_not(Case& c) {
  c.input("x", c.draw.shape(0, 4), {.zeros = true});
}

template <class F> Array broadcast_pair(const Array& a, const Array& b, const F& f) {
  const Shape shape = broadcast_shapes(a.shape, b.shape, "reference");
  return generate(
      shape, [&](const Index& i) { return f(a.broadcast(i, shape.rank()), b.broadcast(i, shape.rank())); });
}

// The gradient of an operand that is broadcast is the sum of those of its elements, each as it was kept.
Array summed_as_kept(Array x, const Shape& shape) {
  if (x.shape == shape || precision().kept == 1) return x;
  for (Var& v : x.v)
    v = Tape::current().record(v.value(), 0, std::initializer_list<Edge>{{v, 1, precision().kept}});
  return x;
}
template <class F> Array arithmetic(Given& given, const F& f) {
  const Array a = given.in("a"), b = given.in("b");
  const Shape shape = broadcast_shapes(a.shape, b.shape, "reference");
  const auto repeated = [&](const Array& x) {
    return generate(shape, [&](const Index& i) { return x.broadcast(i, shape.rank()); });
  };
  return broadcast_pair(summed_as_kept(repeated(a), a.shape), summed_as_kept(repeated(b), b.shape), f);
}

// The larger or the smaller of two; NaN where one is, which passes the gradient to both; equal ones share it.
Var extremum(Var a, Var b, bool larger) {
  const Real x = a.value(), y = b.value();
  if (std::isnan(x) || std::isnan(y))
    return Tape::current().record(x + y, 0, std::initializer_list<Edge>{{a}, {b}});
  const Real share = x == y ? 0.5L : (x > y) == larger ? 1 : 0;
  return Tape::current().record((x > y) == larger ? x : y, 0,
                                std::initializer_list<Edge>{{a, share}, {b, 1 - share}});
}

Var power(Var a, Var b) {
  const Real x = a.value(), y = b.value(), value = std::pow(x, y);
  const Real of_a = y == 0 ? 0 : y * std::pow(x, y - 1);
  const Real of_b = x == 0 && y >= 0 ? 0 : value * std::log(x);
  return Tape::current().record(value, std::fabs(value), std::initializer_list<Edge>{{a, of_a}, {b, of_b}});
}
// The largest integer not above a / b.
Real floor_quotient(Real x, Real y) {
  if (y == 0) return x / y;
  const Real rest = std::fmod(x, y);
  const Real quotient = std::rint((x - rest) / y) - (rest != 0 && (rest < 0) != (y < 0) ? 1 : 0);
  return std::isinf(y) && std::isfinite(x) ? (rest != 0 && (rest < 0) != (y < 0) ? -1 : 0) : quotient;
}
Var floor_divided(Var a, Var b) {
  const Real y = floor_quotient(a.value(), b.value());
  return Tape::current().record(y, std::fabs(y), std::initializer_list<Edge>{{a, 0}, {b, 0}});
}
Var remainder_of(Var a, Var b) {
  const Real x = a.value(), y = b.value(), rest = std::fmod(x, y);
  const Real value = rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
  return Tape::current().record(value, std::fabs(value),
                                std::initializer_list<Edge>{{a}, {b, -floor_quotient(x, y)}});
}
template <Var (*F)(Var, Var)> Array with_number(Given& given) {
  if (!given.given("number")) return arithmetic(given, F);
  const Array a = given.in("a");
  const Var number(given.attribute("number", 0.0));
  return generate(a.shape, [&](const Index& i) { return F(a.at(i), number); });
}

template <class F> Array comparison(Given& given) {
  const Array a = given.constant("a");
  given.result = DType::boolean;
  const auto compare = [](Var x, Var y) { return Var(F()(x.value(), y.value()) ? 1 : 0); };
  if (given.has("b")) return broadcast_pair(a, given.constant("b"), compare);
  const Var number(given.attribute("number", 0.0));
  return generate(a.shape, [&](const Index& i) { return compare(a.at(i), number); });
}

bool truth(Real x) {
  return x != 0;
}
template <class F> Array logical(Given& given) {
  given.result = DType::boolean;
  const Array a = given.constant("a");
  return broadcast_pair(a, given.constant("b"),
                        [](Var x, Var y) { return Var(F()(truth(x.value()), truth(y.value())) ? 1 : 0); });
}
Array logical_not(Given& given) {
  given.result = DType::boolean;
  const Array x = given.constant("x");
  return generate(x.shape, [&](const Index& i) { return Var(truth(x.at(i).value()) ? 0 : 1); });
}

Array where_op(Given& given) {
  const Array condition = given.constant("condition"), a = given.in("a"), b = given.in("b");
  const Shape shape = broadcast_shapes(broadcast_shapes(a.shape, b.shape, "where"), condition.shape, "where");
  return generate(shape, [&](const Index& i) {
    const int rank = shape.rank();
    return condition.broadcast(i, rank).value() != 0 ? a.broadcast(i, rank) : b.broadcast(i, rank);
  });
}

}  // namespace

RandomOps binary_ops() {
  return {
      {"add", Types::numbers, draw_arithmetic,
       [](Given& g) { return arithmetic(g, [](Var a, Var b) { return a + b; }); }},
      {"sub", Types::numbers, draw_arithmetic,
       [](Given& g) { return arithmetic(g, [](Var a, Var b) { return a - b; }); }},
      {"mul", Types::numbers, draw_arithmetic,
       [](Given& g) { return arithmetic(g, [](Var a, Var b) { return a * b; }); }},
      {"div", Types::floating, draw_div,
       [](Given& g) { return arithmetic(g, [](Var a, Var b) { return a / b; }); }},
      {"maximum", Types::numbers, draw_compared,
       [](Given& g) { return arithmetic(g, [](Var a, Var b) { return extremum(a, b, true); }); }},
      {"minimum", Types::numbers, draw_compared,
       [](Given& g) { return arithmetic(g, [](Var a, Var b) { return extremum(a, b, false); }); }},
      {"floor_divide", Types::numbers, draw_floor, with_number<floor_divided>},
      {"remainder", Types::numbers, draw_floor, with_number<remainder_of>},
      {"pow", Types::floating, draw_pow, with_number<power>},
      {"eq", Types::any, draw_comparison, comparison<std::equal_to<>>},
      {"ne", Types::any, draw_comparison, comparison<std::not_equal_to<>>},
      {"lt", Types::any, draw_comparison, comparison<std::less<>>},
      {"le", Types::any, draw_comparison, comparison<std::less_equal<>>},
      {"gt", Types::any, draw_comparison, comparison<std::greater<>>},
      {"ge", Types::any, draw_comparison, comparison<std::greater_equal<>>},
      {"logical_and", Types::any, draw_logical, logical<std::logical_and<>>},
      {"logical_or", Types::any, draw_logical, logical<std::logical_or<>>},
      {"logical_xor", Types::any, draw_logical, logical<std::not_equal_to<>>},
      {"logical_not", Types::any, draw_logical_not, logical_not},
      {"where", Types::any, draw_where, where_op},
  };
}

}  // namespace athanor::random_ops
