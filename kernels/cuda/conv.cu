#include "kernels/conv.h"
#include "kernels/copy.h"
#include "kernels/cuda/conv_depthwise.h"
#include "kernels/cuda/conv_products.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vendor.h"
#include "kernels/cuda/vendor_conv.h"
#include "kernels/detail/conv_size.h"
#include "kernels/matmul.h"

// Who does a convolution: the vendor, a plain product, a kernel for depthwise ones, or products of patches.

namespace athanor::kernels {
namespace {

void check_sizes(const ConvSize& z) {
  constexpr std::int64_t kMax = std::int64_t{1} << 30;
  ATH_CHECK((z.h + 2 * z.padding_h) * (z.w + 2 * z.padding_w) < kMax && z.r * z.s * z.c < kMax &&
                z.r * z.s * z.k < kMax && z.stride_h < kMax && z.stride_w < kMax,
            "conv2d: a padded image must have less than {} pixels, and a filter less than that many taps",
            kMax);
  if (!cuda::is_depthwise(z)) return;
  constexpr std::int64_t kElements = std::int64_t{1} << 31;
  ATH_CHECK(
      z.h * z.w * z.c < kElements && z.p * z.q * z.k < kElements,
      "conv2d: an image of a depthwise convolution must have less than {} elements, but got {} x {} x {} "
      "and {} x {} x {}",
      kElements, z.h, z.w, z.c, z.p, z.q, z.k);
}

/// x [..., columns] as a matrix.
Tensor rows(const Tensor& x, std::int64_t columns) {
  return x.detach().view_as_strided({x.numel() / columns, columns}, {columns, 1}, 0);
}
Tensor columns(const Tensor& x, std::int64_t columns) {
  return x.detach().view_as_strided({columns, x.numel() / columns}, {1, columns}, 0);
}

/// The end of a call that the vendor did not take.
void check_impl(const Conv2dParams& params, const Tensor& x) {
  ATH_CHECK(params.impl != ConvImpl::direct && params.impl != ConvImpl::winograd,
            "conv2d: impl must be automatic, reference or vendor on CUDA, but got {}",
            params.impl == ConvImpl::direct ? "direct" : "winograd");
  if (params.impl != ConvImpl::vendor) return;
  if (!cuda::has_vendor())
    athanor::detail::fail<BackendError>("conv2d: this build has no cuDNN; use ConvImpl::automatic");
  athanor::detail::fail<BackendError>("conv2d: cuDNN has no plan for {} {}; use ConvImpl::automatic",
                                      x.dtype(), x.shape());
}

}  // namespace

template <>
void conv2d_forward(CudaContext& context, const Conv2dParams& params, const Tensor& x, const Tensor& w,
                    const Tensor& bias, const Tensor& y) {
  if (y.numel() == 0) return;
  const bool nothing = x.numel() == 0;  // no channels
  if (!nothing && cuda::vendor_conv_forward(context, params, x, w, bias, y)) return;
  check_impl(params, x);
  const ConvSize z(x.shape(), w.shape(), y.shape(), params);
  if (!nothing && z.is_pointwise())
    return matmul(context, MatmulImpl::reference, rows(x, z.c), columns(w, z.c), bias, params.activation,
                  rows(y, z.k), Write::overwrite);
  check_sizes(z);
  dispatch_floating(x.dtype(), "conv2d", [&]<class T>() {
    const auto run = cuda::is_depthwise(z) ? cuda::depthwise_forward<T> : cuda::product_forward<T>;
    run(context, z, params.activation, x.data<T>(), w.data<T>(), cuda::data_or_null<T>(bias), y.data<T>(),
        cuda::kMaxCounted);
  });
}

template <>
bool conv2d_forward_sums(CudaContext& context, const Conv2dParams& params, const Tensor& x, const Tensor& w,
                         const Tensor& y, const Tensor& sums) {
  if (!may_sum_channels(params, x, y)) return false;
  if (const auto answer = cuda::vendor_conv_forward_sums(context, params, x, w, y, sums)) return *answer;
  if (params.impl != ConvImpl::automatic && params.impl != ConvImpl::reference) return false;
  const ConvSize z(x.shape(), w.shape(), y.shape(), params);
  if (!z.is_pointwise()) check_sizes(z);
  return dispatch_floating(x.dtype(), "conv2d", [&]<class T>() {
    if constexpr (sizeof(T) == 2)
      return cuda::product_forward_sums(context, z, x.data<T>(), w.data<T>(), y.data<T>(),
                                        sums.data<float>());
    return false;
  });
}

template <>
void conv2d_backward_data(CudaContext& context, const Conv2dParams& params, const Tensor& dy, const Tensor& w,
                          const Tensor& dx, Write write_dx) {
  if (dx.numel() == 0) return;
  const bool nothing = dy.numel() == 0;  // no filters
  if (!nothing && cuda::vendor_conv_backward_data(context, params, dy, w, dx, write_dx)) return;
  check_impl(params, dx);
  const ConvSize z(dx.shape(), w.shape(), dy.shape(), params);
  if (!nothing && z.is_pointwise())
    return matmul(context, MatmulImpl::reference, rows(dy, z.k), rows(w, z.c), {}, Activation::none,
                  rows(dx, z.c), write_dx);
  check_sizes(z);
  dispatch_floating(dy.dtype(), "conv2d", [&]<class T>() {
    if (!cuda::is_depthwise(z))
      return cuda::product_backward_data(context, z, dy.data<T>(), w.data<T>(), dx.data<T>(),
                                         write_dx == Write::accumulate);
    const Tensor to = write_dx == Write::accumulate ? empty_like(dx) : dx;
    cuda::depthwise_backward_data(context, z, dy.data<T>(), w.data<T>(), to.data<T>());
    if (write_dx == Write::accumulate) add_into(context, to, dx);
  });
}

template <>
void conv2d_backward_weights(CudaContext& context, const Conv2dParams& params, const Tensor& x,
                             const Tensor& dy, const Tensor& dw, Write write_dw, const Tensor& dbias,
                             Write write_dbias) {
  const bool nothing = x.numel() == 0 || dy.numel() == 0;
  if (!nothing &&
      cuda::vendor_conv_backward_weights(context, params, x, dy, dw, write_dw, dbias, write_dbias))
    return;
  check_impl(params, x);
  if (dbias.defined()) column_sums(context, dy, dbias, write_dbias);
  if (!dw.defined() || dw.numel() == 0) return;
  const bool accumulate = write_dw == Write::accumulate;
  const ConvSize z(x.shape(), dw.shape(), dy.shape(), params);
  if (!nothing && z.is_pointwise())
    return matmul(context, MatmulImpl::reference, columns(dy, z.k), rows(x, z.c), {}, Activation::none,
                  rows(dw, z.c), write_dw);
  check_sizes(z);
  dispatch_floating(x.dtype(), "conv2d", [&]<class T>() {
    const auto run = [&]<class W>() {
      const auto pass = cuda::is_depthwise(z) ? cuda::depthwise_backward_weights<T, W>
                                              : cuda::product_backward_weights<T, W>;
      pass(context, z, x.data<T>(), dy.data<T>(), dw.data<W>(), accumulate, cuda::kMaxCounted);
    };
    if (dw.dtype() == x.dtype()) {
      run.template operator()<T>();
    } else {
      run.template operator()<Accumulate<T>>();
    }
  });
}

}  // namespace athanor::kernels
