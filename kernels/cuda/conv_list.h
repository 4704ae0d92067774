#pragma once

#include <cstdint>
#include <string>

#include "kernels/account/context.h"
#include "kernels/copy.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/conv_plan.h"
#include "kernels/cuda/implementation.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"

// The convolutions of a GPU, in one list: for its kernels, and for the account, which has a cost of each.

namespace athanor::cuda {

/// One pass of a convolution: x, w and y, or their gradients in their places, of which the pass writes one.
struct ConvCall {
  static constexpr const char *kOp = "conv2d", *kImpl = "ConvImpl";

  ConvPass pass;
  Conv2dParams params;
  const Tensor &x, &w;
  const Tensor& bias;  ///< forward: [K], or undefined
  const Tensor& y;
  Write write = Write::overwrite;  ///< what becomes of dx or dw
  const Tensor* sums = nullptr;    ///< forward: [2, K] f32, of which conv2d_forward_sums() speaks
  /// Elements that one launch counts of images that have no more.
  std::int64_t most = kMaxCounted;
  /// Reads relu(norm(norm->x)) instead of x; or, backward to the data, writes the gradient before that ReLU
  /// to x, and to `sums` what conv2d_backward_data_sums() says.
  const kernels::PendingNorm* norm = nullptr;
  /// Behind a norm: forward, where its result goes if it has a shortcut; backward to the data, what others
  /// contribute to its gradient.
  Tensor with_norm = {};
  ConvSize z{x.shape(), w.shape(), y.shape(), params};

  const Tensor& result() const {
    return pass == ConvPass::forward ? y : pass == ConvPass::backward_data ? x : w;
  }
  bool accumulates() const { return write == Write::accumulate; }
  Activation activation() const { return pass == ConvPass::forward ? params.activation : Activation::none; }
  /// Whether there is nothing to multiply: what our own kernels do, whoever is asked for.
  bool empty() const { return x.numel() == 0 || w.numel() == 0 || y.numel() == 0; }
  ConvImpl asked() const { return empty() ? ConvImpl::reference : params.impl; }
  std::string str() const { return fmt::format("{} {}", x.dtype(), x.shape()); }

  /// The same, for one implementation, with another tensor as its result.
  ConvCall with(ConvImpl impl, const Tensor& to) const {
    Conv2dParams asked_for = params;
    asked_for.impl = impl;
    return {pass,
            asked_for,
            pass == ConvPass::backward_data ? to : x,
            pass == ConvPass::backward_weights ? to : w,
            bias,
            pass == ConvPass::forward ? to : y,
            write,
            sums,
            most,
            norm,
            with_norm};
  }
  /// The same with y of the norm in memory or, backward to the data, with its gradient.
  ConvCall without_norm(const Tensor& of_y) const {
    return {pass, params, of_y, w, bias, y, write, pass == ConvPass::forward ? sums : nullptr, most};
  }
};

// Each implementation has two functions. That for CUDA queues the work, and the call's result() is as the
// contracts of kernels/conv.h have it; the other adds what it costs to the account (account/conv.cpp).

/// By a plan of cuDNN's or, where the convolution is a plain product, of cuBLASLt's (vendor_conv.cpp).
bool vendor_fits(CudaContext& context, const ConvCall& call);
bool vendor_fits(AccountContext& context, const ConvCall& call);
bool vendor_conv(CudaContext& context, const ConvCall& call);
bool vendor_conv(AccountContext& context, const ConvCall& call);
bool depthwise_conv(CudaContext& context, const ConvCall& call);
bool depthwise_conv(AccountContext& context, const ConvCall& call);
bool product_conv(CudaContext& context, const ConvCall& call);
bool product_conv(AccountContext& context, const ConvCall& call);
/// What a kernel costs that is launched once, reads each operand once and writes the result.
bool one_launch(AccountContext& context, const ConvCall& call, bool assumed = false);
/// Throws ArgumentError where our kernels' indices would overflow.
void check_sizes(const ConvCall& call);

/// A 1 x 1 filter at every pixel: a product of matrices that lie there already.
template <class Context> bool pointwise_conv(Context& context, const ConvCall& call) {
  const auto rows = [](const Tensor& t, std::int64_t columns) {
    return t.detach().view_as_strided({t.numel() / columns, columns}, {columns, 1}, 0);
  };
  const auto transposed = [](const Tensor& t, std::int64_t columns) {
    return t.detach().view_as_strided({columns, t.numel() / columns}, {1, columns}, 0);
  };
  const auto multiply = [&](const Tensor& a, const Tensor& b, const Tensor& y, std::int64_t columns) {
    kernels::matmul(context, MatmulImpl::reference, a, b, call.bias, call.activation(), rows(y, columns),
                    call.write);
  };
  const std::int64_t c = call.z.c, k = call.z.k;
  switch (call.pass) {
    case ConvPass::forward: multiply(rows(call.x, c), transposed(call.w, c), call.y, k); break;
    case ConvPass::backward_data: multiply(rows(call.y, k), rows(call.w, c), call.x, c); break;
    case ConvPass::backward_weights: multiply(transposed(call.y, k), rows(call.x, c), call.w, c); break;
  }
  return true;
}

template <class Context> bool pointwise_fits(Context&, const ConvCall& call) {
  return !call.empty() && !call.sums && call.z.is_pointwise();
}
template <class Context> bool depthwise_fits(Context&, const ConvCall& call) {
  return is_depthwise(call.z);
}
template <class Context> bool product_fits(Context&, const ConvCall&) {
  return true;
}

/// In order of preference. HACKING.md shows how to add one.
template <class Context> const auto& conv_list() {
  static constexpr Implementation<Context, ConvImpl, ConvCall> list[] = {
      {"vendor", ConvImpl::vendor, "a build with cuDNN, and a plan of cuDNN's", vendor_fits, vendor_conv},
      {"pointwise", ConvImpl::reference, "", pointwise_fits<Context>, pointwise_conv<Context>},
      {"depthwise", ConvImpl::reference, "", depthwise_fits<Context>, depthwise_conv},
      {"products", ConvImpl::reference, "", product_fits<Context>, product_conv},
  };
  return list;
}

template <class Context> void run_conv(Context& context, const ConvCall& call) {
  if (call.result().numel() > 0) run_first(context, conv_list<Context>(), call);
}
/// conv2d_forward_sums(): the first that could do it decides.
template <class Context> bool run_conv_sums(Context& context, const ConvCall& call) {
  if (!may_sum_channels(call.params, call.x, call.y)) return false;
  for (const auto& one : conv_list<Context>()) {
    if (one.takes(context, call)) return one.run(context, call);
  }
  return false;
}

/// The result of a norm that is pending, into y.
template <class Context>
void compute_norm(Context& context, const kernels::PendingNorm& norm, const Tensor& y) {
  Tensor shortcut = norm.residual;
  if (norm.other) {
    const kernels::PendingNorm& other = *norm.other;
    shortcut = empty_like(other.x);
    kernels::batch_norm_forward(context, Activation::none, other.x, other.gamma, other.beta, other.stats, {},
                                shortcut);
  }
  kernels::batch_norm_forward(context, Activation::relu, norm.x, norm.gamma, norm.beta, norm.stats, shortcut,
                              y);
}

/// The first pass of a norm's gradient, for dbeta and dgamma in rows `first` and `first` + 1 of `sums`.
/// With a result y of a ReLU, writes the gradient before that to g.
template <class Context>
void sum_norm_gradient(Context& context, const kernels::PendingNorm& norm, const Tensor& dy, const Tensor& y,
                       const Tensor& g, const Tensor& sums, std::int64_t first) {
  const std::int64_t channels = norm.x.dim(-1);
  const auto row = [&](std::int64_t i) { return sums.view_as_strided({channels}, {1}, i * channels); };
  kernels::BatchNormBackward args;
  if (y.defined()) args.activation = Activation::relu, args.extra = y, args.dresidual = g;
  args.x = norm.x, args.gamma = norm.gamma, args.beta = norm.beta, args.stats = norm.stats, args.dy = dy;
  args.dbeta = {row(first)}, args.dgamma = {row(first + 1)};
  kernels::batch_norm_backward_sums(context, args,
                                    Tensor::empty({1 + 2 * channels}, {DType::f64, norm.x.device()}));
}

/// Behind a norm, ours, with y of the norm in memory of its own.
template <class Context> bool conv_and_norm_apart(Context& context, const ConvCall& call) {
  const kernels::PendingNorm& norm = *call.norm;
  const bool keeps = call.pass == ConvPass::forward && call.with_norm.defined();
  const Tensor y = keeps ? call.with_norm : empty_like(norm.x), none;
  compute_norm(context, norm, y);
  if (call.pass == ConvPass::forward) return run_conv_sums(context, call.without_norm(y));
  if (call.pass == ConvPass::backward_weights) {
    run_conv(context, call.without_norm(y));
    return true;
  }
  const Tensor dy = empty_like(y);
  run_conv(context, call.without_norm(dy));
  if (call.with_norm.defined()) kernels::add_into(context, call.with_norm, dy);
  sum_norm_gradient(context, norm, dy, y, call.x, *call.sums, 0);
  if (norm.other) sum_norm_gradient(context, *norm.other, call.x, none, none, *call.sums, 2);
  return true;
}

/// A convolution behind a norm: cuDNN's or, for one who asks for our kernels, these.
template <class Context> bool run_conv_behind_norm(Context& context, const ConvCall& call) {
  if (!may_follow_norm(call.params, call.x, call.w)) return false;
  const bool shortcut = call.norm->residual.defined() || call.norm->other;
  if (shortcut && !(call.pass == ConvPass::forward ? call.z.is_pointwise() : call.z.has_unit_stride()))
    return false;
  if (call.asked() == ConvImpl::reference) return conv_and_norm_apart(context, call);
  return vendor_fits(context, call) && vendor_conv(context, call);
}

/// kernels::conv2d_forward_sums() behind a norm.
template <class Context>
bool conv_forward_behind_norm(Context& context, const Conv2dParams& params, const kernels::PendingNorm& norm,
                              const Tensor& w, const Tensor& result, const Tensor& y, const Tensor& sums) {
  const Tensor none;
  return run_conv_behind_norm(context, {.pass = ConvPass::forward,
                                        .params = params,
                                        .x = norm.x,
                                        .w = w,
                                        .bias = none,
                                        .y = y,
                                        .sums = &sums,
                                        .norm = &norm,
                                        .with_norm = result});
}

/// kernels::conv2d_backward_weights() behind a norm.
template <class Context>
bool conv_backward_weights_behind_norm(Context& context, const Conv2dParams& params,
                                       const kernels::PendingNorm& norm, const Tensor& dy, const Tensor& dw,
                                       Write write_dw) {
  const Tensor none;
  return run_conv_behind_norm(context, {.pass = ConvPass::backward_weights,
                                        .params = params,
                                        .x = norm.x,
                                        .w = dw,
                                        .bias = none,
                                        .y = dy,
                                        .write = write_dw,
                                        .norm = &norm});
}

/// kernels::conv2d_backward_data_sums() behind a norm.
template <class Context>
bool conv_backward_data_behind_norm(Context& context, const Conv2dParams& params, const Tensor& dy,
                                    const Tensor& w, const kernels::PendingNorm& norm, const Tensor& others,
                                    const Tensor& g, const Tensor& sums) {
  const Tensor none;
  return run_conv_behind_norm(context, {.pass = ConvPass::backward_data,
                                        .params = params,
                                        .x = g,
                                        .w = w,
                                        .bias = none,
                                        .y = dy,
                                        .sums = &sums,
                                        .norm = &norm,
                                        .with_norm = others});
}

}  // namespace athanor::cuda
