#include "kernels/conv.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/conv_list.h"
#include "kernels/cuda/vendor.h"

namespace athanor {

void cuda::check_sizes(const ConvCall& call) {
  const ConvSize& z = call.z;
  constexpr std::int64_t kMax = std::int64_t{1} << 30;
  ATH_CHECK((z.h + 2 * z.padding_h) * (z.w + 2 * z.padding_w) < kMax && z.r * z.s * z.c < kMax &&
                z.r * z.s * z.k < kMax && z.stride_h < kMax && z.stride_w < kMax,
            "conv2d: a padded image must have less than {} pixels, and a filter less than that many taps",
            kMax);
}

}  // namespace athanor

namespace athanor::kernels {

using cuda::ConvPass;

void conv2d_forward(CudaContext& context, const Conv2dParams& params, const Tensor& x, const Tensor& w,
                    const Tensor& bias, Out y) {
  cuda::run_conv(context, {ConvPass::forward, params, x, w, bias, y});
}

bool conv2d_forward_sums(CudaContext& context, const Conv2dParams& params, const Tensor& x, const Tensor& w,
                         Out y, Out sums) {
  const Tensor none;
  return cuda::run_conv_sums(context, {ConvPass::forward, params, x, w, none, y, Write::overwrite, &sums});
}

void conv2d_backward_data(CudaContext& context, const Conv2dParams& params, const Tensor& dy, const Tensor& w,
                          Out dx, Write write_dx) {
  const Tensor none;
  cuda::run_conv(context, {ConvPass::backward_data, params, dx, w, none, dy, write_dx});
}

void conv2d_backward_weights(CudaContext& context, const Conv2dParams& params, const Tensor& x,
                             const Tensor& dy, Out dw, Write write_dw, Out dbias, Write write_dbias) {
  const Tensor none;
  if (dw.defined()) cuda::run_conv(context, {ConvPass::backward_weights, params, x, dw, none, dy, write_dw});
  if (dbias.defined()) column_sums(context, dy, dbias, write_dbias);
}

/// cuDNN has engines for Ampere to Hopper, and with a shortcut for Hopper; they are taken only where they are
/// measured.
bool conv2d_may_follow_norm(CudaContext& context, const Conv2dParams& params, const Tensor& x,
                            const Tensor& w, bool shortcut) {
  if (!may_follow_norm(params, x, w)) return false;
  const int sm = context.sm();
  const bool has_engines = sm == 90 || (!shortcut && sm >= 80 && sm < 90);
  const bool measures = cuda::has_vendor() && context.vendor().options().autotune && !context.deterministic;
  return params.impl == ConvImpl::reference || (has_engines && measures);
}

bool conv2d_forward_sums(CudaContext& context, const Conv2dParams& params, const PendingNorm& norm,
                         const Tensor& w, Out result, Out y, Out sums) {
  return cuda::conv_forward_behind_norm(context, params, norm, w, result, y, sums);
}

bool conv2d_backward_weights(CudaContext& context, const Conv2dParams& params, const PendingNorm& norm,
                             const Tensor& dy, Out dw, Write write_dw) {
  return cuda::conv_backward_weights_behind_norm(context, params, norm, dy, dw, write_dw);
}

bool conv2d_backward_data_sums(CudaContext& context, const Conv2dParams& params, const Tensor& dy,
                               const Tensor& w, const PendingNorm& norm, const Tensor& others, Out g,
                               Out sums) {
  return cuda::conv_backward_data_behind_norm(context, params, dy, w, norm, others, g, sums);
}

}  // namespace athanor::kernels
