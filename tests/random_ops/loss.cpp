
#include "tests/random_ops/op.h"

// Losses over classes.

namespace athanor::random_ops {
namespace {

const char* draw_reduction(Case& c) {
  const char* reduction = c.draw.choose({"mean", "sum", "none"});
  c.set("reduction", std::string(reduction));
  return reduction;
}

Tensor draw_classes(Case& c, const Shape& shape, std::int64_t classes) {
  const DType dtype = c.draw.choose({DType::i64, DType::i64, DType::i32, DType::u8});
  return c.draw.tensor(shape, dtype, {.low = 0, .high = static_cast<double>(classes)});
}

void draw_cross_entropy(Case& c) {
  const Shape leading = c.draw.shape(0, 3, 40);
  const std::int64_t classes = c.draw.size(c.draw.chance(0.2) ? 40 : 9, 1);
  Shape shape = leading;
  shape.push_back(classes);
  // The gradient of a sample that is passed over is 0 times what its logits make.
  Values logits = logit_values(c.draw);
  logits.special = !c.draw.nonfinite;
  c.input("logits", shape, logits);
  draw_reduction(c);
  if (c.draw.chance(0.5)) c.set("label_smoothing", c.draw.choose({0.125, 0.5, 1.0}));
  if (c.draw.chance(0.4))
    c.give("weight", c.draw.dense({classes}, c.wide_dtype(), {.low = 0.1, .high = 2, .special = false}));
  if (c.draw.chance(0.3)) {
    c.give("target", c.draw.tensor(shape, c.dtype, {.low = 0, .high = 1, .special = false}));
    return;
  }
  c.give("target", draw_classes(c, leading, classes));
  if (c.draw.chance(0.3)) c.set("ignore_index", c.draw.integer(0, classes - 1));
}

void draw_nll(Case& c) {
  const std::int64_t batch = c.draw.size(9), classes = c.draw.size(9, 1);
  c.input("log_probs", {batch, classes}, {.low = -5, .high = 0});
  c.give("target", c.draw.tensor({batch}, DType::i64, {.low = 0, .high = static_cast<double>(classes)}));
  draw_reduction(c);
}

// -sum_c w_c ((1 - s) q_c + s / C) log p_c, of terms that count for something.
Var loss_of(const std::vector<Var>& logs, const std::vector<Var>& q, Real smoothing, const Array& weight) {
  const auto classes = static_cast<Real>(logs.size());
  std::vector<Var> terms;
  for (std::size_t c = 0; c < logs.size(); ++c) {
    const Var share = smoothing == 0 ? q[c] : q[c] * Var(1 - smoothing) + Var(smoothing / classes);
    const Var weighted = weight.v.empty() ? share : share * weight.v[c];
    terms.push_back(weighted * logs[c]);
  }
  return -sum(terms);
}

Array cross_entropy_op(Given& given) {
  const Array logits = given.in("logits"), weight = given.constant("weight");
  const bool distribution = is_floating(given.tensor("target").dtype());
  const Array target = distribution ? given.in("target") : given.constant("target");
  const Real smoothing = given.attribute("label_smoothing", 0.0);
  const auto ignored = static_cast<Real>(given.attribute<std::int64_t>("ignore_index", -1));
  const auto classes = static_cast<std::size_t>(logits.shape[logits.shape.rank() - 1]);

  Array losses = {reduced(logits.shape, given.axes(logits.shape.rank(), {-1}), false), {}};
  Real divisor = 0;
  for (std::size_t row = 0; row * classes < logits.v.size(); ++row) {
    const auto first = logits.v.begin() + static_cast<std::ptrdiff_t>(row * classes);
    const std::vector<Var> logs = log_softmax({first, first + static_cast<std::ptrdiff_t>(classes)});
    if (distribution) {
      const auto q = target.v.begin() + static_cast<std::ptrdiff_t>(row * classes);
      losses.v.push_back(loss_of(logs, {q, q + static_cast<std::ptrdiff_t>(classes)}, smoothing, weight));
      divisor += 1;
      continue;
    }
    const Real chosen = target.v[row].value();
    if (chosen == ignored) {
      losses.v.push_back(Var(0));
      continue;
    }
    const auto at = static_cast<std::size_t>(chosen);
    divisor += weight.v.empty() ? 1 : weight.v[at].value();
    const Var own = weight.v.empty() ? logs[at] : logs[at] * weight.v[at];
    if (smoothing == 0) {
      losses.v.push_back(-own);
      continue;
    }
    std::vector<Var> q(classes, Var(0));
    q[at] = Var(1);
    losses.v.push_back(loss_of(logs, q, smoothing, weight));
  }
  given.result = given.result == DType::f64 ? DType::f64 : DType::f32;
  const std::string reduction = given.attribute<std::string>("reduction", "mean");
  if (reduction != "mean") return reduce_losses(losses, reduction);
  return {{}, {sum(losses.v) / Var(divisor)}};
}

Array nll_op(Given& given) {
  const Array logs = given.in("log_probs"), target = given.constant("target");
  given.result = given.result == DType::f64 ? DType::f64 : DType::f32;
  Array losses = {target.shape, {}};
  for (std::size_t row = 0; row < target.v.size(); ++row) {
    const auto chosen = static_cast<std::int64_t>(target.v[row].value());
    losses.v.push_back(-logs.at({static_cast<std::int64_t>(row), chosen}));
  }
  return reduce_losses(losses, given.attribute<std::string>("reduction", "mean"));
}

}  // namespace

Array reduce_losses(const Array& losses, const std::string& reduction) {
  if (reduction == "none") return losses;
  const Var total = sum(losses.v);
  return {{}, {reduction == "sum" ? total : total / Var(static_cast<Real>(losses.v.size()))}};
}

RandomOps loss_ops() {
  return {
      {"cross_entropy", Types::floating, draw_cross_entropy, cross_entropy_op},
      {"nll_loss", Types::floating, draw_nll, nll_op},
  };
}

}  // namespace athanor::random_ops
