#include "tests/random_ops/check.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/random_ops/precision.h"
#include "tests/support/compare.h"

namespace athanor::random_ops {
namespace {

std::string listed(std::span<const std::int64_t> values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}
std::string layout_of(const Tensor& x) {
  std::vector<std::int64_t> strides;
  for (int i = 0; i < x.rank(); ++i) strides.push_back(x.strides()[i]);
  return fmt::format("{} {}{}", x.dtype(), x.shape(), x.is_contiguous() ? "" : " strides " + listed(strides));
}

DType draw_dtype(Draw& draw, Types types) {
  const DType floating[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
  const DType integers[] = {DType::i64, DType::i32, DType::u8, DType::boolean};
  if (types == Types::floating || draw.chance(0.7)) return floating[draw.integer(0, 3)];
  return integers[draw.integer(0, types == Types::any ? 3 : 2)];
}

Expected expect(std::string name, const Array& of, DType dtype) {
  Expected result{std::move(name), of.shape, dtype, {}, {}};
  for (const Var v : of.v) {
    result.values.push_back(v.value());
    result.errors.push_back(v.error());
  }
  return result;
}

// Draws dL/dy, and goes back with it: the gradients of all floating inputs.
void expect_gradients(Drawn& drawn, Draw& draw, const Given& given, const Array& y) {
  // Of the case's dtype: others, which have losses in a half type, lose nothing then.
  const Values values{.low = -2, .high = 2, .special = false};
  const Tensor dy =
      cast(draw.tensor(y.shape, is_floating(drawn.dtype) ? drawn.dtype : given.result, values), given.result);
  drawn.call.tensors.set("dy", dy);
  std::vector<Real> gradients;
  for (const double value : dy.to_vector()) gradients.push_back(value);
  Tape& tape = Tape::current();
  tape.backward(y.v, gradients);
  for (const auto& [name, leaf] : given.leaves()) {
    const DType dtype = given.tensor(name).dtype();
    if (!is_floating(dtype)) continue;
    Expected result{"d" + name, leaf.shape, dtype, {}, {}};
    for (const Var v : leaf.v) {
      result.values.push_back(tape.gradient(v));
      result.errors.push_back(tape.gradient_error(v));
    }
    drawn.expected.push_back(std::move(result));
  }
}

// Some inputs, but not all, get no gradient: those of the others do not depend on that.
void make_some_constant(Drawn& drawn, Draw& draw) {
  std::vector<std::string> names;
  for (const Expected& one : drawn.expected) {
    if (one.name.starts_with("d")) names.push_back(one.name);
  }
  const std::int64_t kept = draw.integer(0, std::ssize(names) - 1);
  for (std::int64_t i = 0; i < std::ssize(names); ++i) {
    const std::string& name = names[static_cast<std::size_t>(i)];
    if (i == kept || draw.chance(0.5)) continue;
    drawn.call.constants.insert(name.substr(1));
    std::erase_if(drawn.expected, [&](const Expected& one) { return one.name == name; });
  }
}

// Gives an op one tensor under two names, if it has two alike.
void make_same(Drawn& drawn) {
  constexpr std::pair<const char*, const char*> kAlike[] = {
      {"a", "b"}, {"k", "q"}, {"residual", "x"}, {"positive", "anchor"}, {"beta", "gamma"}};
  const StateDict& tensors = drawn.call.tensors;
  for (const auto& [name, other] : kAlike) {
    if (!tensors.contains(name) || !tensors.contains(other)) continue;
    const Tensor x = tensors.tensor(other), own = tensors.tensor(name);
    if (is_floating(x.dtype()) && x.dtype() == own.dtype() && x.shape() == own.shape())
      drawn.same[name] = other;
  }
  StateDict all;
  for (const auto& [name, value] : tensors) {
    const auto other = drawn.same.find(name);
    all.set(name, other == drawn.same.end() ? value : tensors.tensor(other->second));
  }
  drawn.call.tensors = all;
}

bool any_floating(const Given& given) {
  return std::any_of(given.leaves().begin(), given.leaves().end(),
                     [&](const auto& leaf) { return is_floating(given.tensor(leaf.first).dtype()); });
}

// What an integer type of that width keeps of a value.
Real wrapped(Real value, DType dtype) {
  if (dtype == DType::boolean) return value != 0 ? 1 : 0;
  const Real range = std::exp2(static_cast<Real>(8 * size_of(dtype)));
  Real rest = std::fmod(value, range);
  if (dtype == DType::u8) return rest < 0 ? rest + range : rest;
  if (rest >= range / 2) rest -= range;
  return rest < -range / 2 ? rest + range : rest;
}

// The distance of numbers that the last place of a result may be off by.
Real unit(DType dtype, Real value, Real error) {
  const auto eps = static_cast<Real>(test::epsilon_of(dtype));
  const Real size = std::fabs(value), least = smallest(dtype);
  if (!is_half(dtype)) return std::max(eps * std::max(size, error), least);
  return std::max(eps * size + static_cast<Real>(test::epsilon_of(DType::f32)) * error, least);
}

std::string kind_of(Real x) {
  return std::isnan(x) ? "NaN" : x == HUGE_VALL ? "inf" : x == -HUGE_VALL ? "-inf" : "finite";
}

// What an element is off by, or what it must be where that is no question of digits.
struct Verdict {
  double error = 0;
  std::string must_be;
  bool skipped = false;
};
Verdict judge(Real y, const Expected& expected, std::size_t i) {
  const DType dtype = expected.dtype;
  const Real wanted = expected.values[i];
  if (!is_floating(dtype)) {
    const Real integer = wrapped(wanted, dtype);
    return {0, y == integer ? "" : fmt::format("{:.0f}", static_cast<double>(integer))};
  }
  if (expected.errors[i] == kUndecided) return {0, "", true};
  const Verdict kind{0, fmt::format("{} ({})", kind_of(wanted), static_cast<double>(wanted))};
  if (!std::isfinite(wanted)) {
    const bool statistic = expected.name.starts_with("running_");  // of what is not finite: any such
    return (statistic && !std::isfinite(y)) || kind_of(y) == kind_of(wanted) ? Verdict{} : kind;
  }
  const auto most = static_cast<Real>(largest(dtype));
  // Where terms of a sum overflow, the order of steps decides.
  if (!(expected.errors[i] <= most / 4)) return {0, "", true};
  const Real step = unit(dtype, wanted, expected.errors[i]), size = std::fabs(wanted);
  if (std::isinf(y)) return size + 4 * step >= most && (y > 0) == (wanted > 0) ? Verdict{} : kind;
  if (std::isnan(y)) return kind;
  if (size - 4 * step > most) return {0, "infinite"};
  return {static_cast<double>(std::fabs(y - std::copysign(std::min(size, most), wanted)) / step), ""};
}

}  // namespace

std::string Drawn::describe() const {
  std::string inputs;
  for (const auto& [name, value] : call.tensors)
    inputs += fmt::format("; {} {}", name, layout_of(std::get<Tensor>(value)));
  for (const auto& [name, other] : same) inputs += fmt::format("; {} is {}", name, other);
  for (const std::string& name : call.constants) inputs += fmt::format("; {} is constant", name);
  return fmt::format("{} ({}) {}{}", call.op, impl, call.attributes.dump(), inputs);
}

Drawn draw_case(std::uint64_t seed, const RandomOp& op, std::uint64_t number) {
  Draw draw(seed, op.name, number);
  Tape::current().clear();
  Drawn drawn;
  drawn.number = number;
  drawn.dtype = draw_dtype(draw, op.types);
  const DType inside = drawn.dtype == DType::f64 ? DType::f64 : DType::f32;
  precision().epsilon = test::epsilon_of(inside);
  precision().smallest = smallest(inside);
  precision().largest = largest(inside);
  precision().largest_kept = largest(drawn.dtype);
  precision().kept = is_half(drawn.dtype) ? test::epsilon_of(drawn.dtype) / test::epsilon_of(inside) : 1;
  drawn.call = {op.name, nlohmann::json::object(), {}};
  Case c{draw, drawn.dtype, drawn.call};
  op.draw(c);
  if (draw.chance(0.05)) make_same(drawn);
  const bool has_choice = op.name == "matmul" || op.name == "linear" || op.name.starts_with("conv");
  if (has_choice) drawn.impl = draw.choose({"automatic", "automatic", "reference", "vendor"});

  Given given(drawn.call, drawn.dtype, drawn.same);
  const Array y = op.reference(given);
  drawn.expected.push_back(expect("y", y, given.result));
  for (const auto& [name, buffer] : given.buffers) {
    if (given.has(name)) drawn.expected.push_back(expect(name, buffer, given.tensor(name).dtype()));
  }
  if (is_floating(given.result) && any_floating(given)) {
    expect_gradients(drawn, draw, given, y);
    if (draw.chance(0.2)) make_some_constant(drawn, draw);
  }
  return drawn;
}

Difference difference(const Tensor& got, const Expected& expected) {
  Difference worst;
  if (got.shape() != expected.shape || got.dtype() != expected.dtype) {
    worst.wrong = fmt::format("{} must be {} {}, but is {} {}", expected.name, expected.dtype, expected.shape,
                              got.dtype(), got.shape());
    worst.comparable = false;
    return worst;
  }
  const std::vector<Real> values = numbers_of(got);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Verdict verdict = judge(values[i], expected, i);
    worst.skipped += verdict.skipped ? 1 : 0;
    const auto got_here = static_cast<double>(values[i]);
    if (!verdict.must_be.empty() && worst.wrong.empty())
      worst.wrong = fmt::format("{}[{}] must be {}, but is {}", expected.name, i, verdict.must_be, got_here);
    if (!(verdict.error > worst.error)) continue;
    worst.error = verdict.error;
    worst.at = i;
    worst.got = got_here;
  }
  return worst;
}

}  // namespace athanor::random_ops
