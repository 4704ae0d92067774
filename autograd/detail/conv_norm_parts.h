#pragma once

#include <optional>
#include <utility>

#include "autograd/conv_norm.h"
#include "autograd/node.h"
#include "kernels/norm.h"

namespace athanor::kernels {
class PackedWeights;
}

// What conv_norm() consists of.
namespace athanor::detail {

/// conv2d() before a batch norm in training. Writes the sums of y's channels if there is no bias and no
/// activation, where that is faster than to read y again: on a GPU for f16 and bf16 if fusion_enabled(), on
/// the CPU with Winograd's algorithm. Else they stay undefined.
Tensor conv2d_with_sums(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params,
                        Tensor& sums);

/// activation(conv(x, w) + bias + residual) with packed weights and bias; not recorded. x and residual (the
/// result's shape, or undefined) are f32 on the CPU.
Tensor conv2d_packed(const Tensor& x, const kernels::PackedWeights& w, const Conv2dParams& params,
                     const Tensor& residual = {});

/// batch_norm() of x.y, by its sums if they are defined.
Tensor batch_norm(const Unnormalised& x, const Tensor& residual);

/// Whether a deferred norm may be computed by the convolution that follows it: see conv_norm_deferred().
bool may_stay_pending(const DeferredNorm& norm, const ConvArguments& conv);
/// conv2d() of a norm that may stay pending, and the sums of its channels if they are found. Records both,
/// also where separate passes are faster. The norm then is done.
void conv2d_of_pending(const DeferredNorm& norm, const ConvArguments& conv, Unnormalised& to);

/// A norm with ReLU before a convolution that may compute it. Finds its statistics when it is made; then one
/// of the functions below records it as batch_norm(), or batch_norm_pair() if its residual is normalised.
class NormBeforeConv {
 public:
  /// The norm is still to be done, and so may be its residual.
  explicit NormBeforeConv(const DeferredNorm& norm);

  const kernels::PendingNorm& operands() const { return operands_; }
  bool has_shortcut() const { return operands_.residual.defined() || operands_.other; }
  /// The result, computed.
  Tensor computed() const;
  /// The result, which the convolution has computed; undefined where it has not stored it. Then it is one in
  /// name: it has the op's gradient, and in the place of its values those of x. The convolution alone may
  /// have it.
  Tensor recorded(const Tensor& y) const { return recorded(y, {}); }

 private:
  Tensor recorded(const Tensor& y, const Tensor& mask) const;

  const Unnormalised& norm_;
  const DeferredNorm& residual_;
  kernels::PendingNorm operands_, other_;
};

/// What a backward pass keeps of a norm, but for its shortcut.
class SavedNorm {
 public:
  explicit SavedNorm(const kernels::PendingNorm& norm)
      : x_(norm.x),
        gamma_(norm.gamma),
        beta_(norm.beta),
        stats_(norm.stats),
        coefficients_(norm.coefficients) {}
  kernels::PendingNorm get() const { return {x_, gamma_, beta_, stats_, coefficients_}; }

 private:
  Saved x_, gamma_, beta_, stats_, coefficients_;
};

/// What a batch norm with ReLU offers to a convolution that reads its result: to compute
/// conv2d_backward_data_sums(), and to leave here the sums and the gradient that they belong to, which is
/// then that of before the ReLU.
class NormGradientOffer final : public RefCounted {
 public:
  /// Of a norm and its shortcut.
  explicit NormGradientOffer(const kernels::PendingNorm& norm);

  /// Whether the residual is as it was. The norm itself may do without it, so that is no error.
  bool stands() const { return residual_.intact(); }
  /// f(norm), if it stands.
  template <class F> void with_norm(const F& f) const {
    kernels::PendingNorm norm = norm_.get(), other;
    norm.residual = residual_;
    if (other_) other = other_->get(), norm.other = &other;
    f(norm);
  }
  void give(const Tensor& sums, const Tensor& gradient) { sums_ = sums, gradient_ = gradient; }
  /// The sums given for this gradient since the last call; undefined: none, as after a pass that has ended
  /// between the two.
  Tensor take(const Tensor& gradient) {
    const Tensor sums = std::exchange(sums_, {}), given = std::exchange(gradient_, {});
    return given.same_as(gradient) ? sums : Tensor();
  }

 private:
  SavedNorm norm_;
  Saved residual_;
  std::optional<SavedNorm> other_;
  Tensor sums_, gradient_;
};

/// The node of a batch norm.
class NormNode : public Node {
 public:
  using Node::Node;
  NormGradientOffer* offer = nullptr;  ///< which the closure owns; null: none
};

/// Whether batch_norm_pair() has code for these: on a GPU, in training, with ReLU, a multiple of 8 channels
/// and no joined batch.
bool fuses_batch_norm_pair(const Unnormalised& a, const Unnormalised& b);
/// activation(norm(a) + norm(b)) as one op, with the activation of a. Both have one shape and dtype. Same
/// bits as batch_norm() of b, then of a with that as its residual.
Tensor batch_norm_pair(const Unnormalised& a, const Unnormalised& b);

/// Whether batch_norm_max_pool() has code for these: on a GPU, in training without a joined batch, with ReLU
/// and windows of which few overlap.
bool fuses_batch_norm_max_pool(const Unnormalised& x, const Pool2dParams& pool);
/// max_pool2d(batch_norm(x)) as one op, with its bits.
Tensor batch_norm_max_pool(const Unnormalised& x, const Pool2dParams& pool);

/// Whether max_pool_batch_norm() has code for these: on a GPU, in training without a joined batch, with
/// windows side by side.
bool fuses_max_pool_batch_norm(const Tensor& x, const Pool2dParams& pool, const NormArguments& norm);
/// batch_norm(max_pool2d(x)) as one op, with its bits.
Tensor max_pool_batch_norm(const Tensor& x, const Pool2dParams& pool, const NormArguments& norm);

}  // namespace athanor::detail
