#include "kernels/conv.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/conv_list.h"

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

}  // namespace athanor::kernels
