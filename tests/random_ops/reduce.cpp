#include <algorithm>
#include <cmath>

#include "tests/random_ops/op.h"
#include "tests/random_ops/precision.h"

// Reductions over any axes, largest values, softmax.

namespace athanor::random_ops {
namespace {

// x, and some of its axes; none stands for all.
void draw_some_axes(Case& c, const Values& values) {
  const Shape shape = c.draw.shape(0, 4, 400);
  c.input("x", shape, values);
  std::vector<int> axes;
  for (int i = 0; i < shape.rank(); ++i) {
    if (c.draw.chance(0.5)) axes.push_back(c.draw.chance(0.5) ? i : i - shape.rank());
  }
  c.set("axes", axes);
  c.set("keepdim", c.draw.chance(0.5));
}
void draw_axes(Case& c) {
  draw_some_axes(c, {.wide = c.draw.chance(0.15)});
}
void draw_truth(Case& c) {
  draw_some_axes(c, {.zeros = true});
}
void draw_var(Case& c) {
  draw_some_axes(c, {});
  c.set("correction", static_cast<int>(c.draw.integer(0, 2)));
}
// Any axis of a shape, which is not empty. A softmax has as many slopes as the square of its elements.
void draw_axis(Case& c, const Values& values = {}) {
  Shape shape = c.draw.shape(1, 4, 400, 1100);
  const auto axis = static_cast<int>(c.draw.integer(0, shape.rank() - 1));
  shape[axis] = std::max<std::int64_t>(shape[axis], 1);
  c.set("axis", c.draw.chance(0.5) ? axis : axis - shape.rank());
  c.input("x", shape, values);
}
void draw_extremum(Case& c) {
  if (c.draw.chance(0.7)) {
    draw_axis(c);
    c.set("keepdim", c.draw.chance(0.5));
    return;
  }
  Shape shape = c.draw.shape(0, 4);
  for (int i = 0; i < shape.rank(); ++i) shape[i] = std::max<std::int64_t>(shape[i], 1);
  c.input("x", shape, {.wide = c.draw.chance(0.3)});
}
void draw_softmax(Case& c) {
  draw_axis(c, logit_values(c.draw));
}
void draw_topk(Case& c) {
  Shape shape = c.draw.shape(1, 4, 400);
  const auto axis = static_cast<int>(c.draw.integer(0, shape.rank() - 1));
  c.set("axis", axis);
  c.set("k", c.draw.integer(0, shape[axis]));
  c.set("largest", c.draw.chance(0.5));
  c.set("result", std::string(c.draw.chance(0.6) ? "values" : "indices"));
  // Few different ones: equal elements come in the order of their indices.
  const Values values{.low = c.dtype == DType::u8 ? 0.0 : -4.0, .high = 5};
  if (is_floating(c.dtype) && c.draw.chance(0.4)) {
    c.give("x", cast(c.draw.tensor(shape, DType::i32, values), c.dtype));
  } else {
    c.input("x", shape, values);
  }
}

template <class F> Array over_axes(Given& given, const F& f) {
  const Array x = given.in("x");
  const std::vector<int> named = given.attribute("axes", std::vector<int>{});
  return reduce(x, given.axes(x.shape.rank(), named), given.attribute("keepdim", false), f);
}

// Some orders of the terms overflow before the sum is divided.
Var mean_of(const std::vector<Var>& terms) {
  const Var total = sum(terms), mean = total / Var(static_cast<Real>(terms.size()));
  if (!std::isfinite(total.value()) || total.error() <= precision().largest / 4) return mean;
  return Tape::current().record(mean.value(), kUndecided, std::initializer_list<Edge>{{mean}});
}

// Its gradient is 2 (x - mean) / (n - correction), or what a division by 0 makes of the deviations' signs.
Array var_op(Given& given) {
  const int correction = given.attribute("correction", 1);
  const bool of_all = given.attribute("axes", std::vector<int>{}).empty();
  return over_axes(given, [=](const std::vector<Var>& x) {
    const auto n = static_cast<Real>(x.size());
    const Var mean = mean_of(x);
    Real squares = 0, roundings = 0;
    for (const Var element : x) {
      const Real deviation = element.value() - mean.value();
      squares += deviation * deviation;
      roundings += deviation * deviation + 2 * std::fabs(deviation) * mean.error() +
                   mean.error() * mean.error() * precision().epsilon;
    }
    const Real divisor = n - correction, kept = std::max(divisor, Real(0));
    std::vector<Edge> edges;
    for (const Var element : x) {
      const Real deviation = element.value() - mean.value();
      const Real outside = deviation == 0 || std::isnan(deviation) ? std::nan("") : HUGE_VALL;
      const Real slope = of_all && divisor <= 0 ? outside : 2 * deviation / divisor;
      edges.push_back({element, slope, 2 * mean.error() / std::fabs(divisor)});
    }
    // A division by 0 shows squares that vanish.
    const bool vanishes = kept == 0 && squares > 0 && squares < n * precision().smallest;
    return Tape::current().record(squares / kept, vanishes ? kUndecided : roundings / kept, edges);
  });
}

std::size_t place_of_max(const std::vector<Var>& x) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i].value())) return i;
    if (x[i].value() > x[best].value()) best = i;
  }
  return best;
}

// Of all elements: equal ones share the gradient.
Var max_of_all(const std::vector<Var>& x) {
  const Real largest = x[place_of_max(x)].value();
  const auto equal = [&](Var v) {
    return v.value() == largest || (std::isnan(largest) && std::isnan(v.value()));
  };
  const auto count = static_cast<Real>(std::count_if(x.begin(), x.end(), equal));
  std::vector<Edge> edges;
  for (const Var v : x) {
    if (equal(v)) edges.push_back({v, 1 / count});
  }
  return Tape::current().record(largest, 0, edges);
}

Array over_axis(Given& given, Var (*one)(const std::vector<Var>&), Var (*all)(const std::vector<Var>&)) {
  const Array x = given.in("x");
  std::vector<bool> axes(static_cast<std::size_t>(x.shape.rank()), true);
  const bool of_all = !given.given("axis");
  if (!of_all) {
    axes.assign(axes.size(), false);
    axes[static_cast<std::size_t>(given.axis(x.shape.rank()))] = true;
  }
  return reduce(x, axes, given.attribute("keepdim", false), of_all ? all : one);
}
Array max_op(Given& given) {
  return over_axis(
      given, [](const std::vector<Var>& x) { return x[place_of_max(x)]; }, max_of_all);
}
Array argmax_op(Given& given) {
  given.result = DType::i64;
  const auto place = [](const std::vector<Var>& x) { return Var(static_cast<Real>(place_of_max(x))); };
  return over_axis(given, place, place);
}

Array truth(Given& given, bool all) {
  given.result = DType::boolean;
  return over_axes(given, [=](const std::vector<Var>& x) {
    const auto is_true = [](Var v) { return v.value() != 0; };
    const bool y = all ? std::all_of(x.begin(), x.end(), is_true) : std::any_of(x.begin(), x.end(), is_true);
    return Var(y ? 1 : 0);
  });
}

Array topk_op(Given& given) {
  const Array x = given.in("x");
  const int axis = given.axis(x.shape.rank());
  const std::int64_t k = given.attribute<std::int64_t>("k", 1);
  const bool largest = given.attribute("largest", true);
  const bool values = given.attribute<std::string>("result", "values") == "values";
  if (!values) given.result = DType::i64;
  return map_slices(x, axis, k, [&](const std::vector<Var>& slice) {
    std::vector<std::size_t> order(slice.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto above = [](Real a, Real b) { return std::isnan(a) ? !std::isnan(b) : a > b; };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
      const Real a = slice[i].value(), b = slice[j].value();
      return largest ? above(a, b) : above(b, a);
    });
    std::vector<Var> result;
    for (std::int64_t i = 0; i < k; ++i) {
      const std::size_t at = order[static_cast<std::size_t>(i)];
      result.push_back(values ? slice[at] : Var(static_cast<Real>(at)));
    }
    return result;
  });
}

Array softmax_op(Given& given) {
  const Array x = given.in("x");
  const int axis = given.axis(x.shape.rank());
  const bool logarithm = given.op() == "log_softmax";
  return map_slices(x, axis, x.shape[axis],
                    [&](const std::vector<Var>& slice) { return log_softmax(slice, logarithm); });
}

}  // namespace

std::vector<Var> log_softmax(const std::vector<Var>& slice, bool logarithm) {
  const Real shift = slice[place_of_max(slice)].value();
  Real total = 0;
  for (const Var v : slice) total += std::exp(v.value() - shift);
  std::vector<Real> logs, shares;
  for (const Var v : slice) {
    logs.push_back(v.value() - shift - std::log(total));
    shares.push_back(std::exp(v.value() - shift) / total);
  }
  // The gradient is made of the result as it was kept.
  const Real kept = precision().kept;
  const auto steps = [&](std::size_t i) { return std::fabs(slice[i].value()) + std::fabs(shift) + 2; };
  std::vector<Var> result;
  std::vector<Edge> edges(slice.size());
  for (std::size_t i = 0; i < slice.size(); ++i) {
    const Real own = shares[i];
    for (std::size_t j = 0; j < slice.size(); ++j) {
      const Real same = i == j ? 1 : 0, share = shares[j];
      const Real off = share == 0 ? 0 : share * std::fabs(logs[j]);
      edges[j] = logarithm
                     ? Edge{slice[j], same - share, kept * off + share * steps(j)}
                     : Edge{slice[j], own * (same - share), (2 * kept + steps(i)) * own * (same + share)};
    }
    const Real roundings = logarithm ? steps(i) + std::log(total) : own * steps(i);
    result.push_back(Tape::current().record(logarithm ? logs[i] : own, roundings, edges));
  }
  return result;
}

RandomOps reduce_ops() {
  return {
      {"sum", Types::floating, draw_axes,
       [](Given& g) { return over_axes(g, [](const auto& x) { return sum(x); }); }},
      {"mean", Types::floating, draw_axes, [](Given& g) { return over_axes(g, mean_of); }},
      {"var", Types::floating, draw_var, var_op},
      {"max", Types::floating, draw_extremum, max_op},
      {"argmax", Types::floating, draw_extremum, argmax_op},
      {"any", Types::any, draw_truth, [](Given& g) { return truth(g, false); }},
      {"all", Types::any, draw_truth, [](Given& g) { return truth(g, true); }},
      {"topk", Types::numbers, draw_topk, topk_op},
      {"softmax", Types::floating, draw_softmax, softmax_op},
      {"log_softmax", Types::floating, draw_softmax, softmax_op},
  };
}

}  // namespace athanor::random_ops
