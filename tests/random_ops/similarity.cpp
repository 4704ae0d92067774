#include <cmath>

#include "tests/random_ops/op.h"

// How near vectors are.

namespace athanor::random_ops {
namespace {

void draw_cosine(Case& c) {
  Shape shape = c.draw.shape(1, 3);
  const auto axis = c.set("axis", static_cast<int>(c.draw.integer(0, shape.rank() - 1)));
  Shape other = shape;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis && c.draw.chance(0.3)) other[i] = 1;
  }
  c.input("a", shape);
  c.input("b", other);
  c.set("eps", c.draw.choose({1e-30, 0x1p-26, 0.125, 2.0}));
}
void draw_triplet(Case& c) {
  Shape shape = c.draw.shape(0, 2, 60);
  shape.push_back(c.draw.size(9, 1));
  // What is not finite times the gradient 0 of a loss that is cut off depends on the order of steps.
  const Tensor anchor = c.input("anchor", shape, {.special = !c.draw.nonfinite});
  c.input("positive", shape, {.special = !c.draw.nonfinite});
  if (c.draw.chance(0.1)) {
    c.give("negative", clone(anchor));  // no distance but eps
  } else {
    c.input("negative", shape, {.special = !c.draw.nonfinite});
  }
  c.set("margin", c.draw.choose({0.5, 1.0, 3.0}));
  c.set("eps", 0x1p-20);
  c.set("swap", c.draw.chance(0.5));
  c.set("reduction", std::string(c.draw.choose({"mean", "sum", "none"})));
}
void draw_nt_xent(Case& c) {
  const Shape shape = {c.draw.size(7, 1), c.draw.size(9, 1)};
  c.input("a", shape);
  c.input("b", shape);
  c.set("temperature", c.draw.choose({0.125, 0.5, 1.0}));
}

// The length of a vector, at least eps.
Var length(const std::vector<Var>& x, Real eps) {
  const Var squares = dot(x, x);
  if (std::sqrt(squares.value()) < eps) return Var(eps);
  return sqrt(squares);
}
Var cosine(const std::vector<Var>& a, const std::vector<Var>& b, Real eps) {
  return dot(a, b) / (length(a, eps) * length(b, eps));
}

Array cosine_op(Given& given) {
  const Array a = given.in("a"), b = given.in("b");
  const Shape shape = broadcast_shapes(a.shape, b.shape, "reference");
  const auto axis = static_cast<std::size_t>(given.axis(shape.rank(), 1));
  std::vector<bool> axes(static_cast<std::size_t>(shape.rank()), false);
  axes[axis] = true;
  Array y = {reduced(shape, axes, false), {}};
  for_each_index(reduced(shape, axes, true), [&](Index i) {
    std::vector<Var> left, right;
    for (i[axis] = 0; i[axis] < shape[static_cast<int>(axis)]; ++i[axis]) {
      left.push_back(a.broadcast(i, shape.rank()));
      right.push_back(b.broadcast(i, shape.rank()));
    }
    y.v.push_back(cosine(left, right, given.attribute("eps", 1e-8)));
  });
  return y;
}

Array triplet_op(Given& given) {
  const Array anchor = given.in("anchor"), positive = given.in("positive"), negative = given.in("negative");
  given.result = given.result == DType::f64 ? DType::f64 : DType::f32;
  const Real eps = given.attribute("eps", 1e-6), margin = given.attribute("margin", 1.0);
  const auto width = static_cast<std::size_t>(anchor.shape[anchor.shape.rank() - 1]);
  const auto apart = [&](const Array& a, const Array& b, std::size_t row) {
    std::vector<Var> differences;
    for (std::size_t i = row; i < row + width; ++i) differences.push_back(a.v[i] - b.v[i] + Var(eps));
    return sqrt(dot(differences, differences));
  };
  Array losses = {reduced(anchor.shape, given.axes(anchor.shape.rank(), {-1}), false), {}};
  for (std::size_t row = 0; row < anchor.v.size(); row += width) {
    Var far = apart(anchor, negative, row);
    if (given.attribute("swap", false)) {
      const Var other = apart(positive, negative, row);
      if (other.value() < far.value()) far = other;
    }
    losses.v.push_back(relu(Var(margin) + apart(anchor, positive, row) - far));
  }
  return reduce_losses(losses, given.attribute<std::string>("reduction", "mean"));
}

Array nt_xent_op(Given& given) {
  const Array a = given.in("a"), b = given.in("b");
  given.result = given.result == DType::f64 ? DType::f64 : DType::f32;
  const auto samples = static_cast<std::size_t>(a.shape[0]), width = static_cast<std::size_t>(a.shape[1]);
  std::vector<std::vector<Var>> rows;
  for (const Array* view : {&a, &b}) {
    for (std::size_t n = 0; n < samples; ++n) {
      const auto first = view->v.begin() + static_cast<std::ptrdiff_t>(n * width);
      rows.emplace_back(first, first + static_cast<std::ptrdiff_t>(width));
    }
  }
  Array losses = {{2 * a.shape[0]}, {}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<Var> logits;
    std::size_t partner = 0;
    for (std::size_t j = 0; j < rows.size(); ++j) {
      if (i == j) continue;
      if (j == (i + samples) % rows.size()) partner = logits.size();
      logits.push_back(cosine(rows[i], rows[j], 1e-8L) / Var(given.attribute("temperature", 0.5)));
    }
    losses.v.push_back(-log_softmax(logits)[partner]);
  }
  return reduce_losses(losses, "mean");
}

}  // namespace

RandomOps similarity_ops() {
  return {
      {"cosine_similarity", Types::floating, draw_cosine, cosine_op},
      {"triplet_margin_loss", Types::floating, draw_triplet, triplet_op},
      {"nt_xent_loss", Types::floating, draw_nt_xent, nt_xent_op},
  };
}

}  // namespace athanor::random_ops
