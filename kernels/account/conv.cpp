#include "kernels/conv.h"

#include <algorithm>
#include <vector>

#include "kernels/account/context.h"
#include "kernels/account/detail/product.h"
#include "kernels/account/flops.h"
#include "kernels/activate.h"
#include "kernels/copy.h"
#include "kernels/cuda/conv_list.h"
#include "kernels/int8.h"
#include "kernels/int8_weights.h"

namespace athanor::cuda {

using account::bytes;
using account::launch;

namespace {

/// The inputs along one axis that some tap falls on: fewer than all where a stride skips some.
std::int64_t touched(std::int64_t inputs, std::int64_t outputs, std::int64_t taps, std::int64_t stride,
                     std::int64_t padding, std::int64_t dilation) {
  std::vector<bool> seen(static_cast<std::size_t>(inputs));
  for (std::int64_t out = 0; out < outputs; ++out) {
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const std::int64_t at = out * stride - padding + tap * dilation;
      if (at >= 0 && at < inputs) seen[static_cast<std::size_t>(at)] = true;
    }
  }
  return std::count(seen.begin(), seen.end(), true);
}

/// The bytes of both factors that a convolution reads; behind a norm, also of what it takes of that.
std::int64_t factors_read(const ConvCall& call) {
  if (call.pass == ConvPass::backward_data) {
    std::int64_t all = bytes(call.y) + bytes(call.w) + bytes(call.with_norm);
    for (const kernels::PendingNorm* norm = call.norm; norm; norm = norm->other)
      all += bytes(norm->x) + bytes(norm->stats) + bytes(norm->gamma) + bytes(norm->beta) +
             bytes(norm->residual);
    return all;
  }
  const ConvSize& z = call.z;
  const std::int64_t x = z.n * touched(z.h, z.p, z.r, z.stride_h, z.padding_h, z.dilation_h) *
                         touched(z.w, z.q, z.s, z.stride_w, z.padding_w, z.dilation_w) * z.c *
                         account::size(call.x.dtype());
  std::int64_t all = x + bytes(call.pass == ConvPass::forward ? call.w : call.y);
  for (const kernels::PendingNorm* norm = call.norm; norm; norm = norm->other)
    all += bytes(norm->coefficients) + bytes(norm->residual) + (norm == call.norm ? 0 : bytes(norm->x));
  return all;
}
/// Those of the bias, and of the result if it is added to.
std::int64_t once_read(const ConvCall& call) {
  return bytes(call.bias) + (call.accumulates() ? bytes(call.result()) : 0);
}

/// A kernel of a convolution's FLOPs.
void add(AccountContext& context, const ConvCall& call, std::int64_t read, std::int64_t written,
         bool assumed = false) {
  context.add({.kernel = kernel_name(call.pass),
               .bytes_read = read,
               .bytes_written = written,
               .flops = product_flops(call.z.work(), 1),
               .dtype = call.x.dtype(),
               .assumed = assumed});
}

}  // namespace

bool one_launch(AccountContext& context, const ConvCall& call, bool assumed) {
  std::int64_t written = bytes(call.result()) + (call.sums ? bytes(*call.sums) : 0);
  if (call.pass == ConvPass::forward) written += bytes(call.with_norm);
  add(context, call, factors_read(call) + once_read(call), written, assumed);
  return true;
}

/// f64 is ours.
bool vendor_fits(AccountContext& context, const ConvCall& call) {
  return context.vendor && call.x.dtype() != DType::f64;
}

/// cuDNN's plan has bias and ReLU in it, or sums, and adds to dx (as beta = 1); other activations are a
/// kernel of ours. It writes dw in x's dtype and does not add: otherwise a small kernel follows.
bool vendor_conv(AccountContext& context, const ConvCall& call) {
  if (call.pass == ConvPass::backward_weights) {
    const bool direct = !call.accumulates() && call.w.dtype() == call.x.dtype();
    const Tensor fresh = direct ? call.w : Tensor::empty(call.w.shape(), call.x.options());
    add(context, call, factors_read(call), bytes(fresh), true);
    if (!direct) {
      call.accumulates() ? kernels::add_into(context, fresh, call.w) : kernels::copy(context, fresh, call.w);
    }
    return true;
  }
  one_launch(context, call, true);
  if (call.activation() != Activation::relu) kernels::activate(context, call.activation(), call.y);
  return true;
}

/// Filters are first transposed, so that channels lie side by side. dw: partial sums of pieces of the pixels,
/// then their sums.
bool depthwise_conv(AccountContext& context, const ConvCall& call) {
  const ConvSize& z = call.z;
  const std::int64_t read = factors_read(call);
  if (call.pass == ConvPass::backward_weights) {
    const int width = depthwise_width(z, static_cast<int>(account::per_vector(call.x.dtype())));
    const ColumnCut cut = column_sums_cut(z.n * z.p * z.q, z.k, width);
    const std::int64_t partial = cut.splits * call.w.numel() * account::wide(call.x);
    add(context, call, read, partial);
    launch(context, kernel_name(call.pass), partial + once_read(call), bytes(call.w));
    return true;
  }
  launch(context, "depthwise", bytes(call.w), bytes(call.w));
  add(context, call, read + bytes(call.bias), bytes(call.result()));
  if (call.accumulates()) kernels::add_into(context, empty_like(call.x), call.x);
  return true;
}

namespace {

/// Each row of tiles leaves a row of sums, which a second kernel adds up.
bool add_product_with_sums(AccountContext& context, const ConvCall& call, account::Product product) {
  product.shape.cuttable = 0;
  if (!product_sums_columns(product.shape)) return false;
  const std::int64_t rows = GemmPlan(product.shape, account::size(product.dtype)).tiles_m,
                     partial = rows * bytes(*call.sums);
  product.written += partial;
  account::add_product(context, product);
  launch(context, "conv2d_sums", partial, bytes(*call.sums));
  return true;
}

/// dx. With a stride, pixels that the same taps see are a launch.
void add_pixels(AccountContext& context, const ConvCall& call) {
  const ConvSize& z = call.z;
  for_residues(z, [&](const Residue& rows, const Residue& columns) {
    const std::int64_t taps = rows.taps * columns.taps,
                       written = z.n * rows.count * columns.count * z.c * account::size(call.x.dtype());
    account::add_product(context, {.kernel = kernel_name(call.pass),
                                   .dtype = call.x.dtype(),
                                   .shape = data_product(z, z.n, rows, columns),
                                   .read = taps > 0 ? bytes(call.y) + bytes(call.w) / (z.r * z.s) * taps : 0,
                                   .once_read = call.accumulates() ? written : 0,
                                   .written = written});
  });
}

}  // namespace

bool product_conv(AccountContext& context, const ConvCall& call) {
  const ConvSize& z = call.z;
  if (call.pass == ConvPass::backward_data) {
    add_pixels(context, call);
    return true;
  }
  const bool forward = call.pass == ConvPass::forward;
  const account::Product product{.kernel = kernel_name(call.pass),
                                 .dtype = call.x.dtype(),
                                 .shape = forward ? forward_product(z, z.n) : weights_product(z, z.n),
                                 .read = factors_read(call),
                                 .once_read = once_read(call),
                                 .written = bytes(call.result())};
  if (call.sums) return add_product_with_sums(context, call, product);
  account::add_product(context, product);
  return true;
}

namespace {

/// Of 8-bit integers, by our kernels alone.
void add_int8_conv(AccountContext& context, const Conv2dParams& params, const Tensor& x,
                   const kernels::Int8Weights& w, const Tensor& residual, const Tensor& y) {
  if (y.numel() == 0) return;
  const Tensor none;
  const ConvCall call{ConvPass::forward, params, x, w.weights(), none, y};
  const std::int64_t read = factors_read(call),
                     once_read = bytes(w.multiplier()) + bytes(w.bias()) + bytes(residual);
  if (is_depthwise(call.z)) {
    launch(context, "depthwise", bytes(call.w), bytes(call.w));
    return context.add({.kernel = kInt8Conv,
                        .bytes_read = read + once_read,
                        .bytes_written = bytes(y),
                        .flops = product_flops(call.z.work(), 1),
                        .dtype = DType::i8});
  }
  account::add_product(context, {.kernel = kInt8Conv,
                                 .dtype = DType::i8,
                                 .shape = int8_product(call.z, call.z.n),
                                 .read = read,
                                 .once_read = once_read,
                                 .written = bytes(y)});
}

}  // namespace
}  // namespace athanor::cuda

namespace athanor::kernels {

using cuda::ConvPass;

void conv2d_int8(AccountContext& context, const Conv2dParams& params, const Tensor& x, std::int32_t,
                 const Int8Weights& w, const Int8Residual& residual, const Rounding&, Out y) {
  cuda::add_int8_conv(context, params, x, w, residual.tensor, y);
}
void conv2d_int8(AccountContext& context, const Conv2dParams& params, const Tensor& x, std::int32_t,
                 const Int8Weights& w, Out y) {
  cuda::add_int8_conv(context, params, x, w, {}, y);
}

void conv2d_forward(AccountContext& context, const Conv2dParams& params, const Tensor& x, const Tensor& w,
                    const Tensor& bias, Out y) {
  cuda::run_conv(context, {ConvPass::forward, params, x, w, bias, y});
}

bool conv2d_forward_sums(AccountContext& context, const Conv2dParams& params, const Tensor& x,
                         const Tensor& w, Out y, Out sums) {
  const Tensor none;
  return cuda::run_conv_sums(context, {ConvPass::forward, params, x, w, none, y, Write::overwrite, &sums});
}

void conv2d_backward_data(AccountContext& context, const Conv2dParams& params, const Tensor& dy,
                          const Tensor& w, Out dx, Write write_dx) {
  const Tensor none;
  cuda::run_conv(context, {ConvPass::backward_data, params, dx, w, none, dy, write_dx});
}

void conv2d_backward_weights(AccountContext& context, const Conv2dParams& params, const Tensor& x,
                             const Tensor& dy, Out dw, Write write_dw, Out dbias, Write write_dbias) {
  const Tensor none;
  if (dw.defined()) cuda::run_conv(context, {ConvPass::backward_weights, params, x, dw, none, dy, write_dw});
  if (dbias.defined()) column_sums(context, dy, dbias, write_dbias);
}

bool conv2d_may_follow_norm(AccountContext& context, const Conv2dParams& params, const Tensor& x,
                            const Tensor& w, bool) {
  return may_follow_norm(params, x, w) && (params.impl == ConvImpl::reference || context.vendor);
}

bool conv2d_forward_sums(AccountContext& context, const Conv2dParams& params, const PendingNorm& norm,
                         const Tensor& w, Out result, Out y, Out sums) {
  return cuda::conv_forward_behind_norm(context, params, norm, w, result, y, sums);
}

bool conv2d_backward_weights(AccountContext& context, const Conv2dParams& params, const PendingNorm& norm,
                             const Tensor& dy, Out dw, Write write_dw) {
  return cuda::conv_backward_weights_behind_norm(context, params, norm, dy, dw, write_dw);
}

bool conv2d_backward_data_sums(AccountContext& context, const Conv2dParams& params, const Tensor& dy,
                               const Tensor& w, const PendingNorm& norm, const Tensor& others, Out g,
                               Out sums) {
  return cuda::conv_backward_data_behind_norm(context, params, dy, w, norm, others, g, sums);
}

}  // namespace athanor::kernels
