#include "tests/random_ops/check.h"

#include <algorithm>
#include <cmath>

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

}  // namespace

const RandomOp& op_of(std::uint64_t number) {
  static const RandomOps all = random_ops();
  return all[number % all.size()];
}

std::string Drawn::describe() const {
  std::string inputs;
  for (const auto& [name, value] : call.tensors)
    inputs += fmt::format("; {} {}", name, layout_of(std::get<Tensor>(value)));
  return fmt::format("{} ({}) {}{}", call.op, impl, call.attributes.dump(), inputs);
}

Drawn draw_case(std::uint64_t seed, std::uint64_t number) {
  const RandomOp& op = op_of(number);
  Draw draw(seed, number);
  Tape::current().clear();
  Drawn drawn;
  drawn.number = number;
  drawn.dtype = draw_dtype(draw, op.types);
  const DType inside = drawn.dtype == DType::f64 ? DType::f64 : DType::f32;
  precision().epsilon = test::epsilon_of(inside);
  precision().smallest = smallest(inside);
  precision().kept = is_half(drawn.dtype) ? test::epsilon_of(drawn.dtype) / test::epsilon_of(inside) : 1;
  drawn.call = {op.name, nlohmann::json::object(), {}};
  Case c{draw, drawn.dtype, drawn.call};
  op.draw(c);
  const bool has_choice = op.name == "matmul" || op.name == "linear" || op.name.starts_with("conv");
  if (has_choice) drawn.impl = draw.choose({"automatic", "automatic", "reference", "vendor"});

  Given given(drawn.call, drawn.dtype);
  const Array y = op.reference(given);
  drawn.expected.push_back(expect("y", y, given.result));
  for (const auto& [name, buffer] : given.buffers) {
    if (given.has(name)) drawn.expected.push_back(expect(name, buffer, given.tensor(name).dtype()));
  }
  if (is_floating(given.result) && any_floating(given)) expect_gradients(drawn, draw, given, y);
  return drawn;
}

Difference difference(const Tensor& got, const Expected& expected) {
  Difference worst;
  if (got.shape() != expected.shape || got.dtype() != expected.dtype) {
    worst.wrong = fmt::format("{} must be {} {}, but is {} {}", expected.name, expected.dtype, expected.shape,
                              got.dtype(), got.shape());
    return worst;
  }
  const DType dtype = got.dtype();
  const std::vector<double> values = got.to_vector();
  const Real most = is_floating(dtype) ? static_cast<Real>(largest(dtype)) : 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Real y = values[i], wanted = expected.values[i];
    const auto wrong = [&](const std::string& must) {
      if (worst.wrong.empty())
        worst = {worst.error, fmt::format("{}[{}] must be {}, but is {}", expected.name, i, must, values[i]),
                 i, values[i]};
    };
    if (!is_floating(dtype)) {
      const auto integer = static_cast<double>(wrapped(wanted, dtype));
      if (values[i] != integer) wrong(fmt::format("{}", integer));
      continue;
    }
    const Real step = unit(dtype, wanted, expected.errors[i]);
    // Where terms of a sum overflow, the order of steps decides.
    if (std::isfinite(wanted) && !(expected.errors[i] <= most / 4)) continue;
    if (std::isfinite(wanted) && std::isfinite(y)) {
      const auto error = static_cast<double>(std::fabs(y - std::min(std::max(wanted, -most), most)) / step);
      if (error > worst.error) worst = {error, worst.wrong, i, values[i]};
      continue;
    }
    if (std::isfinite(wanted) && std::isinf(y) && std::fabs(wanted) + 4 * step >= most &&
        (y > 0) == (wanted > 0))
      continue;
    const bool statistic = expected.name.starts_with("running_");  // of what is not finite: any such
    if (statistic && !std::isfinite(wanted) && !std::isfinite(y)) continue;
    if (kind_of(y) != kind_of(wanted))
      wrong(fmt::format("{} ({})", kind_of(wanted), static_cast<double>(wanted)));
  }
  return worst;
}

}  // namespace athanor::random_ops
