#pragma once  // Explained in docs/batch_norm.md.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/activate.h"

// The maths of the normalisations, written once; every backend sums in its own order and then calls this.

namespace athanor::kernels {

/// Mean and biased variance.
struct Moments {
  double mean, var;
};

/// Mean and biased variance of n values from the sums of (value - shift) and of its square.
ATH_HD inline Moments moments(double shift, double sum, double square, double n) {
  const double deviation = sum / n;
  return {shift + deviation, std::max((square - sum * deviation) / n, 0.0)};
}

/// Mean and sum of squared deviations over several ranks, added rank by rank.
struct JoinedMoments {
  double n = 0, mean = 0, squares = 0;

  ATH_HD void add(double other_n, double other_mean, double other_squares) {
    if (other_n == 0) return;
    const double together = n + other_n, apart = other_mean - mean;
    mean += apart * (other_n / together);
    squares += other_squares + apart * apart * (n * other_n / together);
    n = together;
  }
};

/// The same for one channel of rows [ranks, 1 + 2 channels]: see batch_norm_join().
ATH_HD inline JoinedMoments joined_moments(const double* rows, std::int64_t ranks, std::int64_t channels,
                                           std::int64_t channel) {
  JoinedMoments joined;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const double* row = rows + r * (1 + 2 * channels);
    joined.add(row[0], row[1 + channel], row[1 + channels + channel]);
  }
  return joined;
}

/// Number of values, sum(g) and sum(g d) of one channel over all ranks: see batch_norm_backward_join().
struct JoinedSums {
  double n = 0, first = 0, second = 0;
};
ATH_HD inline JoinedSums joined_sums(const double* rows, std::int64_t ranks, std::int64_t channels,
                                     std::int64_t channel) {
  JoinedSums joined;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const double* row = rows + r * (1 + 2 * channels);
    joined.n += row[0];
    joined.first += row[1 + channel];
    joined.second += row[1 + channels + channel];
  }
  return joined;
}

/// 1 / standard deviation.
template <class A> ATH_HD inline A inverse_deviation(A var, A eps) {
  return A(1) / std::sqrt(var + eps);
}

/// A running statistic after a step towards `value`.
template <class A> ATH_HD inline A moved_towards(A at, double value, double momentum) {
  return A((1 - momentum) * static_cast<double>(at) + momentum * value);
}

// Batch norm: pre = (x - mean) scale + beta with scale = gamma / std, y = activation(pre + residual). Three
// ways to get g = dL/d(pre) from dy, d = x - mean, and the extra tensor:

/// pre is recomputed from x, exactly as in the forward pass.
template <class Operation> struct FromX {
  using Op = Operation;
  static constexpr bool kExtra = false;
  template <class A> ATH_HD static A gradient(A dy, A d, A scale, A beta, A) {
    return Op::backward(std::fma(d, scale, beta), dy);
  }
};
/// extra is the residual.
template <class Operation> struct FromResidual {
  using Op = Operation;
  static constexpr bool kExtra = true;
  template <class A> ATH_HD static A gradient(A dy, A d, A scale, A beta, A extra) {
    return Op::backward(std::fma(d, scale, beta) + extra, dy);
  }
};
/// extra is y.
template <class Operation> struct FromOutput {
  using Op = Operation;
  static constexpr bool kExtra = true;
  template <class A> ATH_HD static A gradient(A dy, A, A, A, A extra) { return Op::backward(extra, dy); }
};

/// batch_norm_mask_bytes() of a backend that has masks.
inline std::int64_t mask_of_relu(Activation activation, const Tensor& x) {
  return activation == Activation::relu && x.dim(-1) % 8 == 0 ? x.numel() / 8 : 0;
}

/// dL/dx from the sums over a channel's n values: offset = sum(g) / n, slope = sum(g d) / (n var). Both are 0
/// if the statistics do not depend on x, whose infinities then have no effect.
template <class A> ATH_HD inline A batch_norm_dx(A g, A d, A scale, A slope, A offset) {
  const A through_variance = std::fma(-slope, d, g);
  return scale * ((slope == A(0) ? g : through_variance) - offset);
}
/// One of these means; `share` is 1 / n, or 0 if the statistics do not depend on x.
ATH_HD inline double batch_norm_mean(double sum, double share) {
  return share == 0 ? 0 : sum * share;
}

/// Sizes of a group norm, from x [N, ..., C] and stats [N, G, 2].
struct ChannelGroups {
  std::int64_t images, pixels, channels, groups, width;  // pixels of an image; channels of a group

  ChannelGroups(const Tensor& x, const Tensor& stats)
      : images(x.dim(0)),
        pixels(x.numel() > 0 ? x.numel() / images / x.dim(-1) : 0),
        channels(x.dim(-1)),
        groups(stats.dim(1)),
        width(channels / groups) {}

  /// Number of values normalised together.
  ATH_HD double count() const { return static_cast<double>(pixels * width); }
};

/// Layer and group norm: dL/dx from two means over the values normalised together: of g = dy gamma, and of g
/// times the normalised value.
template <class A> ATH_HD inline A layer_norm_dx(A g, A normalized, A inverse, A mean_g, A mean_product) {
  return inverse * (g - mean_g - normalized * mean_product);
}

}  // namespace athanor::kernels
