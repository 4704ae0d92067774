#include "tests/random_ops/tape.h"

#include "tests/random_ops/precision.h"

namespace athanor::random_ops {
namespace {

// Nothing times infinity is nothing, where errors are meant.
Real bound(Real a, Real b) {
  return a == 0 || b == 0 ? 0 : std::fabs(a * b);
}
// What two numbers' errors make of their product together, all there is where both numbers are 0; and what is
// lost where a product is denormal.
Real second_order(Var a, Var b) {
  return bound(bound(a.error(), b.error()), precision().epsilon) + precision().smallest / precision().epsilon;
}

}  // namespace

Tape& Tape::current() {
  static Tape tape;
  return tape;
}

void Tape::clear() {
  nodes_.clear();
  edges_.clear();
}

Var Tape::record(Real value, Real roundings, std::span<const Edge> edges) {
  Node node{value, roundings, edges_.size()};
  for (const Edge& edge : edges) node.error += bound(edge.slope, error(edge.from));
  if (roundings == kUndecided) node.error = kUndecided;
  edges_.insert(edges_.end(), edges.begin(), edges.end());
  nodes_.push_back(node);
  Var x;
  x.id_ = static_cast<std::int32_t>(nodes_.size() - 1);
  return x;
}

void Tape::backward(std::span<const Var> of, std::span<const Real> gradients) {
  gradients_.assign(nodes_.size(), 0);
  gradient_errors_.assign(nodes_.size(), 0);
  overflows_.assign(nodes_.size(), false);
  std::vector<bool> reached(nodes_.size(), false);
  // A number that is there several times, as one that was broadcast, gets the sum of their gradients.
  std::vector<Real> magnitudes(nodes_.size(), 0);
  for (std::size_t i = 0; i < of.size(); ++i) {
    const auto at = static_cast<std::size_t>(of[i].id());
    gradients_[at] += gradients[i];
    magnitudes[at] += std::fabs(gradients[i]);
    if (reached[at]) gradient_errors_[at] = magnitudes[at];
    reached[at] = true;
  }
  std::size_t end = edges_.size();
  for (std::size_t i = nodes_.size(); i-- > 0; end = nodes_[i].first_edge) {
    if (!reached[i]) continue;
    const Real gradient = gradients_[i];
    for (std::size_t e = nodes_[i].first_edge; e < end; ++e) {
      const Edge& edge = edges_[e];
      const auto from = static_cast<std::size_t>(edge.from.id());
      reached[from] = true;
      const Real share = gradient * edge.slope;
      gradients_[from] += share;
      if (std::isfinite(share) && std::fabs(share) > precision().largest_kept) overflows_[from] = true;
      gradient_errors_[from] += bound(edge.slope, gradient_errors_[i]) + bound(gradient, edge.slope_error) +
                                bound(gradient, edge.slope);
    }
  }
}

Var operator+(Var a, Var b) {
  const Var terms[] = {a, b};
  return sum(terms);
}
Var operator-(Var a, Var b) {
  const Real roundings = std::fabs(a.value()) + std::fabs(b.value());
  return Tape::current().record(a.value() - b.value(), roundings, std::initializer_list<Edge>{{a}, {b, -1}});
}
Var operator*(Var a, Var b) {
  const Real y = a.value() * b.value();
  return Tape::current().record(
      y, std::fabs(y) + second_order(a, b),
      std::initializer_list<Edge>{{a, b.value(), b.error()}, {b, a.value(), a.error()}});
}
Var operator/(Var a, Var b) {
  const Real top = a.value(), bottom = b.value(), y = top / bottom, slope = -y / bottom;
  const Real of_top = bound(b.error(), 1 / (bottom * bottom));
  const Real of_bottom = bound(a.error(), 1 / (bottom * bottom)) + 2 * bound(b.error(), slope / bottom);
  return Tape::current().record(y, std::fabs(y),
                                std::initializer_list<Edge>{{a, 1 / bottom, of_top}, {b, slope, of_bottom}});
}
Var operator-(Var x) {
  return Tape::current().record(-x.value(), 0, std::initializer_list<Edge>{{x, -1}});
}

Var sum(std::span<const Var> terms) {
  std::vector<Edge> edges(terms.size());
  Real total = 0, roundings = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    edges[i] = {terms[i]};
    total = i == 0 ? terms[i].value() : total + terms[i].value();
    roundings += std::fabs(terms[i].value());
  }
  return Tape::current().record(total, terms.size() < 2 ? 0 : roundings, edges);
}

Var dot(std::span<const Var> a, std::span<const Var> b) {
  std::vector<Edge> edges;
  edges.reserve(2 * a.size());
  Real total = 0, roundings = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Real x = a[i].value(), y = b[i].value();
    edges.push_back({a[i], y, b[i].error()});
    edges.push_back({b[i], x, a[i].error()});
    total += x * y;
    roundings += std::fabs(x * y) + second_order(a[i], b[i]);
  }
  return Tape::current().record(total, roundings, edges);
}

Var exp(Var x) {
  const auto f = [](Real v) { return std::exp(v); };
  return apply(x, f, f);
}
Var log(Var x) {
  return apply(
      x, [](Real v) { return std::log(v); }, [](Real v) { return 1 / v; });
}
Var sqrt(Var x) {
  return apply(
      x, [](Real v) { return std::sqrt(v); }, [](Real v) { return 1 / (2 * std::sqrt(v)); });
}
Var relu(Var x) {
  const Real at = x.value();
  return Tape::current().record(at < 0 ? 0 : at, 0, std::initializer_list<Edge>{{x, at > 0 ? 1.0L : 0.0L}});
}

}  // namespace athanor::random_ops
