#pragma once

#include <type_traits>

#include "kernels/math.h"
#include "tensor/tensor.h"

// The maths of every loss, written once, like elementwise_ops.h.

namespace athanor::kernels {

// Losses over rows ----------------------------------------------------------------------------------------

/// A cursor over dy: one value for all rows, or one per row at any stride; times a factor.
template <class A> struct RowGradient {
  const A* values;
  std::int64_t step;
  A scale;

  RowGradient(const Tensor& dy, double factor)
      : values(dy.data<A>()), step(dy.rank() == 0 ? 0 : dy.strides()[0]), scale(A(factor)) {}
  ATH_HD A operator[](std::int64_t row) const { return values[row * step] * scale; }
};

/// Cross-entropy of a row of n logits x whose label has the given logit. max: of x; sum: of exp(x - max);
/// shifted: of x - max, used only with smoothing.
template <class A> ATH_HD A cross_entropy(A max, A sum, A shifted, A logit, A n, A smoothing) {
  A loss = math::log(sum) - (A(1) - smoothing) * (logit - max);
  if (smoothing > A(0)) loss -= smoothing * (shifted / n);
  return loss;
}
/// Its derivative in a logit; inverse: 1 / sum, on: 1 - smoothing, spread: smoothing / n.
template <class A> ATH_HD A cross_entropy_slope(A x, A max, A inverse, A on, A spread, bool is_label) {
  const A apart = math::exp(x - max) * inverse - spread;
  return is_label ? apart - on : apart;
}

/// The target distribution of cross-entropy: element c's share is w_c ((1 - smoothing) q_c + smoothing / n).
template <class T> struct TargetShares {
  using A = Accumulate<T>;
  const T* target;  ///< q [N, n], or null for 0 and a smoothing of 1
  const A* weight;  ///< w [n], or null for 1
  A on, spread;

  TargetShares(const Tensor& q, const Tensor& w, double smoothing, std::int64_t n)
      : target(q.defined() ? q.data<T>() : nullptr),
        weight(w.defined() ? w.data<A>() : nullptr),
        on(A(1 - smoothing)),
        spread(A(smoothing / static_cast<double>(n))) {}
  ATH_HD A operator()(A q, std::int64_t c) const {
    const A share = target ? std::fma(on, q, spread) : spread;
    return weight ? weight[c] * share : share;
  }
};
/// A logit's part of the cross-entropy against shares; log_sum: log(sum).
template <class A> ATH_HD A soft_cross_entropy(A x, A max, A log_sum, A share) {
  return share * (log_sum - (x - max));
}
/// The derivative in a logit; scale: the sum of shares / sum.
template <class A> ATH_HD A soft_cross_entropy_slope(A x, A max, A scale, A share) {
  return math::exp(x - max) * scale - share;
}

// Losses over pairs of elements ---------------------------------------------------------------------------
//
// value(a, b) is the loss, slope(a, b) its derivative in a. With kSymmetric, value(b, a) == value(a, b), so
// slope(b, a) is the derivative in b; other losses define target_slope(a, b). With kWeighted, a loss takes a
// third number per element.

/// (a - b)^2
struct SquaredError {
  static constexpr bool kSymmetric = true, kWeighted = false;
  template <class A> ATH_HD A value(A a, A b) const { return (a - b) * (a - b); }
  template <class A> ATH_HD A slope(A a, A b) const { return A(2) * (a - b); }
};

/// Absolute difference |a - b|; the derivative at 0 and at NaN is 0, as for Abs.
struct AbsoluteError {
  static constexpr bool kSymmetric = true, kWeighted = false;
  template <class A> ATH_HD A value(A a, A b) const { return std::fabs(a - b); }
  template <class A> ATH_HD A slope(A a, A b) const {
    const A d = a - b;
    return d > A(0) ? A(1) : d < A(0) ? A(-1) : A(0);
  }
};

/// With d = |a - b|: d^2 / (2 beta) where d < beta, else d - beta / 2.
struct SmoothL1 {
  static constexpr bool kSymmetric = true, kWeighted = false;
  double beta;  ///< > 0

  template <class A> ATH_HD A value(A a, A b) const {
    const A d = std::fabs(a - b), edge = A(beta);
    return d < edge ? A(0.5) * d * d / edge : d - A(0.5) * edge;
  }
  template <class A> ATH_HD A slope(A a, A b) const {
    const A d = a - b, edge = A(beta);
    return d >= edge ? A(1) : d <= -edge ? A(-1) : d / edge;
  }
};

/// With d = |a - b|: d^2 / 2 where d < delta, else delta (d - delta / 2).
struct Huber {
  static constexpr bool kSymmetric = true, kWeighted = false;
  double delta;  ///< > 0

  template <class A> ATH_HD A value(A a, A b) const {
    const A d = std::fabs(a - b), edge = A(delta);
    return d < edge ? A(0.5) * d * d : edge * (d - A(0.5) * edge);
  }
  template <class A> ATH_HD A slope(A a, A b) const {
    const A d = a - b, edge = A(delta);
    return d > edge ? edge : d < -edge ? -edge : d;
  }
};

/// t (log(t) - x), x being a logarithm; 0 log(0) is 0.
struct KlDivergence {
  static constexpr bool kSymmetric = false, kWeighted = false;
  template <class A> ATH_HD A value(A x, A t) const { return (t == A(0) ? A(0) : t * math::log(t)) - t * x; }
  template <class A> ATH_HD A slope(A, A t) const { return -t; }
  template <class A> ATH_HD A target_slope(A x, A t) const { return math::log(t) + A(1) - x; }
};

/// The same with a logarithm t: e^t (t - x).
struct LogKlDivergence {
  static constexpr bool kSymmetric = false, kWeighted = false;
  template <class A> ATH_HD A value(A x, A t) const { return math::exp(t) * (t - x); }
  template <class A> ATH_HD A slope(A, A t) const { return -math::exp(t); }
  template <class A> ATH_HD A target_slope(A x, A t) const { return math::exp(t) * (t - x + A(1)); }
};

/// -p t log(s) - (1 - t) log(1 - s) with s = sigmoid(x): p is the weight of positives. Computed without
/// overflow as (1 - t) x - (1 - t + p t) log(s).
struct WeightedBceWithLogits {
  static constexpr bool kSymmetric = false, kWeighted = true;
  /// -log(sigmoid(x)) is hinge(x) + tail(x); the small part is added last to preserve it.
  template <class A> ATH_HD static A hinge(A x) { return x < A(0) ? -x : A(0); }
  /// log(1 + e^-|x|); the last term compensates the rounding of 1 + e.
  template <class A> ATH_HD static A tail(A x) {
    const A e = math::exp(-std::fabs(x)), u = A(1) + e;
    return math::log(u) + (e - (u - A(1))) / u;
  }
  template <class A> ATH_HD A value(A x, A t, A p) const {
    const A weight = A(1) + (p - A(1)) * t;
    return ((A(1) - t) * x + weight * hinge(x)) + weight * tail(x);
  }
  template <class A> ATH_HD A slope(A x, A t, A p) const {
    return (p * t + A(1) - t) * math::sigmoid(x) - p * t;
  }
  template <class A> ATH_HD A target_slope(A x, A, A p) const {
    return (p - A(1)) * (hinge(x) + tail(x)) - x;
  }
};

/// The same with p = 1.
struct BceWithLogits {
  static constexpr bool kSymmetric = false, kWeighted = false;
  template <class A> ATH_HD A value(A x, A t) const {
    using Weighted = WeightedBceWithLogits;
    return ((A(1) - t) * x + Weighted::hinge(x)) + Weighted::tail(x);
  }
  template <class A> ATH_HD A slope(A x, A t) const { return math::sigmoid(x) - t; }
  template <class A> ATH_HD A target_slope(A x, A) const { return -x; }
};

/// The same times q^gamma and the target's share of alpha: q = t (1 - s) + (1 - t) s is what the prediction
/// lacks, so that easy elements count less.
struct SigmoidFocal {
  static constexpr bool kSymmetric = false, kWeighted = false;
  using IsHeavy = std::true_type;  // see cuda::kIsHeavy
  double gamma;                    ///< >= 0
  double alpha;                    ///< of positives, in [0, 1]; negatives have 1 - alpha. Below 0: all have 1

  template <class A> ATH_HD A balance(A t) const {
    return alpha < 0 ? A(1) : A(alpha) * t + A(1 - alpha) * (A(1) - t);
  }
  /// q, its derivative in x divided by q, and q^gamma.
  template <class A> struct Lack { A q, slope, power; };
  template <class A> ATH_HD Lack<A> lack(A x, A t) const {
    const A s = math::sigmoid(x), rest = math::sigmoid(-x);
    const A q = t * rest + (A(1) - t) * s;
    // Where q underflows, its limit for the target that the prediction meets.
    const A slope = q > A(0) ? (A(1) - A(2) * t) * s * (rest / q) : x > A(0) ? -s : rest;
    return {q, slope, gamma == 0 ? A(1) : math::pow(q, A(gamma))};
  }
  template <class A> ATH_HD A value(A x, A t) const {
    return balance(t) * lack(x, t).power * BceWithLogits{}.value(x, t);
  }
  template <class A> ATH_HD A slope(A x, A t) const {
    const BceWithLogits plain;
    const Lack<A> l = lack(x, t);
    return balance(t) * l.power * (plain.slope(x, t) + A(gamma) * plain.value(x, t) * l.slope);
  }
  template <class A> ATH_HD A target_slope(A x, A t) const {
    const BceWithLogits plain;
    const Lack<A> l = lack(x, t);
    const A loss = plain.value(x, t), of_power = A(1) - A(2) * math::sigmoid(x);
    const A less_one = l.q > A(0) ? l.power / l.q : gamma == 1 ? A(1) : A(0);  // q^(gamma - 1)
    const A in_power = A(gamma) * less_one * of_power * loss;
    const A in_balance = alpha < 0 ? A(0) : A(2 * alpha - 1) * l.power * loss;
    return balance(t) * (l.power * plain.target_slope(x, t) + in_power) + in_balance;
  }
};

/// Presents a loss with its derivative in b.
template <class Op> struct OfTarget {
  static constexpr bool kWeighted = Op::kWeighted;
  using IsHeavy = std::is_same<Op, SigmoidFocal>;
  Op op;
  template <class... A> ATH_HD auto slope(A... x) const { return op.target_slope(x...); }
};

}  // namespace athanor::kernels

/// Every loss over pairs, and the asymmetric ones: drive the instantiations of each backend.
#define ATH_PAIR_LOSSES(X) ATH_DISTANCES(X) ATH_TARGET_LOSSES(X)
#define ATH_DISTANCES(X) X(SquaredError) X(AbsoluteError) X(SmoothL1) X(Huber)
#define ATH_TARGET_LOSSES(X) \
  X(KlDivergence) X(LogKlDivergence) X(BceWithLogits) X(WeightedBceWithLogits) X(SigmoidFocal)
