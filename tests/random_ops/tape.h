#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

// A reference for every op and its gradient, which shares nothing with the library: numbers of 64 bits of
// fraction on a tape. An op is written once, forward, as a naive loop over Var; going back over the tape
// gives the gradients.
//
// Every number carries a bound of the error that an evaluation in floating point may have, in units of the
// rounding error: each step adds its own rounding to what it inherits, to first order. Source: Higham 2002,
// "Accuracy and Stability of Numerical Algorithms", section 3.3. Errors are measured against that bound, so
// that a sum whose terms cancel is not called wrong.

namespace athanor::random_ops {

using Real = long double;

/// The error of a number that the order of steps decides: where a sum overflows before it is divided, say.
inline constexpr Real kUndecided = -HUGE_VALL;

/// A number on the tape.
class Var {
 public:
  Var() = default;
  Var(Real constant);  // NOLINT(google-explicit-constructor): numbers mix with variables

  Real value() const;
  /// The bound of its error, in roundings.
  Real error() const;
  std::int32_t id() const { return id_; }

 private:
  friend class Tape;
  std::int32_t id_ = -1;
};

/// What a number depends on: d(number) / d(from), and by how much that may be wrong.
struct Edge {
  Var from;
  Real slope = 1;
  Real slope_error = 0;
};

class Tape {
 public:
  /// The one all Vars are on.
  static Tape& current();

  void clear();
  /// `roundings`: what its own computation adds to the errors it inherits, or kUndecided.
  Var record(Real value, Real roundings, std::span<const Edge> edges);
  /// Goes back from numbers whose gradients are given.
  void backward(std::span<const Var> of, std::span<const Real> gradients);

  Real value(Var x) const { return nodes_[static_cast<std::size_t>(x.id_)].value; }
  Real error(Var x) const { return nodes_[static_cast<std::size_t>(x.id_)].error; }
  Real gradient(Var x) const { return gradients_[static_cast<std::size_t>(x.id_)]; }
  Real gradient_error(Var x) const {
    const auto at = static_cast<std::size_t>(x.id_);
    return overflows_[at] && !std::isfinite(gradients_[at]) ? kUndecided : gradient_errors_[at];
  }

 private:
  struct Node {
    Real value, error;
    std::size_t first_edge;
  };
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<Real> gradients_, gradient_errors_;
  std::vector<bool> overflows_;  ///< whether a share of a gradient is finite, but too large to be kept
};

Var operator+(Var a, Var b);
Var operator-(Var a, Var b);
Var operator*(Var a, Var b);
Var operator/(Var a, Var b);
Var operator-(Var x);

/// The sum of numbers; the sum of a[i] b[i].
Var sum(std::span<const Var> terms);
Var dot(std::span<const Var> a, std::span<const Var> b);

/// f(x), given its value and derivative: functions of Real.
template <class F, class D> Var apply(Var x, const F& f, const D& derivative) {
  const Real at = x.value(), slope = derivative(at);
  Real slope_error = 0;
  if (x.error() > 0) {  // the derivative's own derivative, roughly
    const Real step = std::fmax(std::fabs(at), 1e-3L) * 1e-7L;
    slope_error = std::fabs(derivative(at + step) - derivative(at - step)) / (2 * step) * x.error();
  }
  const Real y = f(at);
  return Tape::current().record(y, std::fabs(y), std::initializer_list<Edge>{{x, slope, slope_error}});
}
Var exp(Var x);
Var log(Var x);
Var sqrt(Var x);
/// max(x, 0), with the derivative 0 there.
Var relu(Var x);

inline Real Var::value() const {
  return Tape::current().value(*this);
}
inline Real Var::error() const {
  return Tape::current().error(*this);
}
inline Var::Var(Real constant) : Var(Tape::current().record(constant, 0, {})) {}

}  // namespace athanor::random_ops
