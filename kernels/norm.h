#pragma once

#include <type_traits>

#include "kernels/activation.h"
#include "kernels/context.h"
#include "kernels/pool.h"

namespace athanor::kernels {

// Batch normalisation. x, y, dy, dx, residual, dresidual [R, C] (any rank, channels last), dense, one
// floating dtype; A is f32, or f64 for f64. gamma, beta [C] A, or undefined for 1 and 0. `stats` [2, C] A
// holds mean and 1 / sqrt(var + eps). The order of every sum depends only on R and C.

/// Destination of a parameter's gradient; an undefined tensor if it is not needed.
struct GradientTarget {
  Tensor tensor;
  Write write = Write::overwrite;
};

/// Running statistics, moved towards the batch's by `momentum` (variance: unbiased). Undefined: not tracked.
struct RunningStats {
  Tensor mean, var;  // [C] A
  double momentum = 0;
};

/// stats of x itself (biased variance), R > 1. Reads x once; subtracts a mean of sampled rows against
/// cancellation, and combines in f64.
ATH_KERNEL(void, batch_norm_statistics, const Tensor& x, double eps, Out stats, const RunningStats& running);
/// stats from running ones.
ATH_KERNEL(void, batch_norm_fixed, const RunningStats& running, double eps, Out stats);

/// y = activation((x - mean) * (gamma / std) + beta + residual). residual may be undefined. Moves 2 elements
/// (3 with a residual) per element. `mask`: see batch_norm_mask_bytes(); undefined if no backward pass
/// follows.
ATH_KERNEL(void, batch_norm_forward, Activation activation, const Tensor& x, const Tensor& gamma,
           const Tensor& beta, const Tensor& stats, const Tensor& residual, Out y, Out mask = {});
ATH_MAP(batch_norm_forward,
        (Activation, const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& stats,
         const Tensor& residual, Out y, Out mask),
        "batch_norm", (x, residual, stats, gamma, beta), (y, mask))

/// Bytes of the mask that a backward pass with a residual reads in the place of y, or 0 where it reads y. A
/// GPU has one for ReLU, if C is a multiple of 8; the CPU has none. A bit for each element, whether y > 0 or
/// NaN, is 1/16 of a 16-bit y. Byte i has those of elements 8 i to 8 i + 7, the first one lowest.
ATH_KERNEL(std::int64_t, batch_norm_mask_bytes, Activation activation, const Tensor& x);

// `sums` [2, C]: each channel's sum of x, then of x squared. Undefined unless the op that wrote x found them
// (conv2d_forward_sums()). They are not shifted by a mean: where mean^2 is k times the variance, the
// variance's error is k times that of their dtype, f32 on a GPU and f64 on the CPU.

/// The dtype of `sums`.
template <class Context>
inline constexpr DType kSumsDType = std::is_same_v<Context, CpuContext> ? DType::f64 : DType::f32;
/// Whether they are a fusion, which fusion_enabled() governs. The CPU's bits do not depend on it.
template <class Context> inline constexpr bool kSumsAreFusion = !std::is_same_v<Context, CpuContext>;

/// Arguments of batch_norm_training().
struct BatchNormTraining {
  Activation activation = Activation::none;
  Tensor x, gamma, beta, residual;
  double eps = 0;
  RunningStats running;
  Tensor sums;            ///< may be undefined
  Tensor stats, y, mask;  ///< results; mask as in batch_norm_forward()
};
/// batch_norm_statistics(), then batch_norm_forward() with what it finds, with the same bits. On a GPU two
/// launches instead of three, and one where there are sums.
ATH_KERNEL(void, batch_norm_training, const BatchNormTraining& args);

struct BatchNormBackward {
  Activation activation = Activation::none;
  bool training = true;  ///< stats are a function of x
  Tensor x, gamma, beta, stats, dy;
  /// For a residual with an activation, what its derivative needs besides x: the mask [bytes] u8 that the
  /// forward pass wrote, if any; else y if that suffices (gradient_from_output()); else the residual.
  /// Otherwise undefined.
  Tensor extra;
  /// dL/d(residual), shaped like x: defined exactly if `extra` is (it carries the gradient between passes).
  Tensor dresidual;
  Tensor dx;  ///< undefined if not needed
  GradientTarget dgamma, dbeta;
  /// On a GPU, dbeta and dgamma [2, C] A of this dy, if the op that wrote it found them
  /// (conv2d_backward_data_sums()). It has no activation then.
  Tensor sums = {};
};
/// One pass sums, one writes dx. Moves 2 + 3 elements per element (4 + 3 with a residual and an activation,
/// 3 + 3 and a bit with a mask); 3 where there are sums.
ATH_KERNEL(void, batch_norm_backward, const BatchNormBackward& args);

// Two norms that are added: y = ReLU(norm(a) + norm(b)), where a residual block also normalises its shortcut.
// Same bits as batch_norm_training() of b, then of a with b's result as its residual; but that result and its
// gradient are not in memory. x, y, dy, dx of both have one shape and dtype, and batch_norm_mask_bytes() > 0.

/// Backends with batch_norm_pair_*(). The CPU computes one norm after the other.
template <class Context> inline constexpr bool kHasNormPairs = !std::is_same_v<Context, CpuContext>;

/// One of the two.
struct NormTerm {
  Tensor x, gamma, beta;
  double eps = 0;
  RunningStats running;
  Tensor stats;      ///< a result of training
  Tensor sums = {};  ///< may be undefined
};
/// Writes y, the stats of both, and the mask if defined. Moves 5 elements per element: a and b twice, and y.
ATH_KERNEL(void, batch_norm_pair_training, const NormTerm& a, const NormTerm& b, Out y, Out mask);

struct NormGradients {
  Tensor dx;  ///< undefined if not needed
  GradientTarget dgamma, dbeta;
  Tensor sums = {};  ///< as in BatchNormBackward, of f16: for both or for none
};
/// One pass sums, one writes both dx. Moves 3 + 5 elements per element, and the mask twice; 5 where there are
/// sums, and no mask.
ATH_KERNEL(void, batch_norm_pair_backward, const NormTerm& a, const NormTerm& b, const Tensor& dy,
           const Tensor& mask, const NormGradients& to_a, const NormGradients& to_b);

// A norm with ReLU in training that the convolution behind it computes from x as it loads it, so that its
// result need not be in memory; backward that convolution finds the norm's sums along with its own gradient
// (kernels/conv.h).

/// Backends with such norms. The CPU has none.
template <class Context> inline constexpr bool kHasPendingNorms = !std::is_same_v<Context, CpuContext>;

/// y = relu((x - mean) * (gamma / std) + beta + shortcut), rounded to x's dtype.
struct PendingNorm {
  Tensor x, gamma, beta;  ///< gamma and beta are defined
  Tensor stats;
  /// [2, C] of x's dtype: scale and shift, so that y is about relu(x scale + shift). The shift is that of the
  /// rounded scale. In f16, a value before the ReLU is off by 2^-11 of |value - beta| + |shift| at most, and
  /// as much as that of |x scale| is the error of x itself. Backward may do without.
  Tensor coefficients;
  // The shortcut: a tensor, or another norm, or nothing.
  Tensor residual = {};
  const PendingNorm* other = nullptr;
};
/// stats and coefficients of such a norm from its sums.
ATH_KERNEL(void, batch_norm_coefficients, const NormTerm& norm, Out coefficients);

// Max pooling (kernels/pool.h) of what a norm has made, or of what it takes, over x [N, H, W, C]. Same bits
// as the two ops one after the other, but less goes through memory. `index` is u8, of small_windows();
// without a residual.

/// Backends with batch_norm_max_pool_*() and max_pool_batch_norm_*(). The CPU computes one after the other.
template <class Context> inline constexpr bool kHasNormPools = !std::is_same_v<Context, CpuContext>;

/// batch_norm_training(), then max_pool_forward() of its result, which is in no memory: args.y is the pooled
/// tensor. Moves 2 elements per element, and those of y. ReLU alone. An undefined index is not written.
ATH_KERNEL(void, batch_norm_max_pool_training, const BatchNormTraining& args, const PoolWindows& windows,
           Out index);
/// batch_norm_backward(), where args.dy is the gradient of the pooled tensor. Moves 1 + 2 elements per
/// element, and each time dy and index. ReLU and few_windows() alone.
ATH_KERNEL(void, batch_norm_max_pool_backward, const BatchNormBackward& args, const PoolWindows& windows,
           const Tensor& index);

/// max_pool_forward() of x into args.x, which is a result, with the sums that batch_norm_training() needs;
/// then that. An undefined index is not written.
ATH_KERNEL(void, max_pool_batch_norm_training, const PoolWindows& windows, const Tensor& x, Out index,
           const BatchNormTraining& args);
/// batch_norm_backward(), whose args.dx is shaped like the unpooled tensor and gets its gradient; defined.
/// Windows side_by_side() alone.
ATH_KERNEL(void, max_pool_batch_norm_backward, const PoolWindows& windows, const Tensor& index,
           const BatchNormBackward& args);

// Batch norm over several ranks, each with its own rows, R >= 0. Ranks exchange a row of 1 + 2 C f64, which
// begins with R. `rows` [P, 1 + 2 C] has those of all ranks, combined in rank order, so that every rank gets
// the same bits. A rank without values sends zeros and does not count.

/// row = R, the mean of every channel, and the sum of squared deviations from it.
ATH_KERNEL(void, batch_norm_moments, const Tensor& x, Out row);
/// stats of all ranks' values together, at least two. Source: Chan, Golub, LeVeque 1979, "Updating formulae
/// and a pairwise algorithm for computing sample variances".
ATH_KERNEL(void, batch_norm_join, const Tensor& rows, double eps, Out stats, const RunningStats& running);

/// The sums of batch_norm_backward() over this rank's values: writes dgamma, dbeta and dresidual, not dx. row
/// = R, then per channel sum(g) and sum(g (x - mean)), g = dL/d(pre).
ATH_KERNEL(void, batch_norm_backward_sums, const BatchNormBackward& args, Out row);
/// dx, after batch_norm_backward_sums() with the same arguments.
ATH_KERNEL(void, batch_norm_backward_join, const BatchNormBackward& args, const Tensor& rows);

// Layer normalisation over the last D elements of each of R rows; x, y, dy, dx [R, D] dense. gamma, beta [D]
// A or undefined; stats [R, 2] A: mean and 1 / sqrt(var + eps).

/// y = (x - mean) / sqrt(var + eps) gamma + beta; writes y and stats.
ATH_KERNEL(void, layer_norm_forward, const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps,
           Out stats, Out y);
ATH_MAP(layer_norm_forward,
        (const Tensor& x, const Tensor& gamma, const Tensor& beta, double, Out stats, Out y), "layer_norm",
        (x, gamma, beta), (stats, y))
/// dx may be undefined.
ATH_KERNEL(void, layer_norm_backward, const Tensor& x, const Tensor& gamma, const Tensor& stats,
           const Tensor& dy, Out dx, const GradientTarget& dgamma, const GradientTarget& dbeta);

// Group normalisation over the pixels of an image and C / G adjacent channels. x, y, dy, dx [N, ..., C]
// dense; gamma, beta [C] A or undefined; stats [N, G, 2] A: mean and 1 / sqrt(var + eps). Reads x twice for
// the statistics: deviations are from the mean itself.

/// y = (x - mean) / sqrt(var + eps) gamma + beta; writes y and stats.
ATH_KERNEL(void, group_norm_forward, const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps,
           Out stats, Out y);
/// dx may be undefined.
ATH_KERNEL(void, group_norm_backward, const Tensor& x, const Tensor& gamma, const Tensor& stats,
           const Tensor& dy, Out dx, const GradientTarget& dgamma, const GradientTarget& dbeta);

}  // namespace athanor::kernels
