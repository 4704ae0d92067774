#include "kernels/cuda/conv_error.h"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/copy.h"
#include "tensor/counters.h"

namespace athanor::cuda {
namespace {

Tensor image_of(const Tensor& images, std::int64_t i) {
  Shape shape = images.shape();
  const std::int64_t size = images.numel() / shape[0];
  shape[0] = 1;
  return images.detach().view_as_strided(shape, images.strides(), i * size);
}

Tensor in_f32(CudaContext& context, const Tensor& x) {
  if (!x.defined()) return x;
  const Tensor wide = Tensor::empty(x.shape(), {DType::f32, x.device()});
  kernels::copy(context, x, wide);
  return wide;
}

}  // namespace

double error_beside_ours(CudaContext& context, const Conv2dParams& params, const Tensor& x, const Tensor& w,
                         const Tensor& bias, const Tensor& y) {
  const AllowSync planning;
  Conv2dParams own = params;
  own.impl = ConvImpl::reference;
  double theirs_squared = 0, ours_squared = 0;
  for (const std::int64_t i : {std::int64_t{0}, x.shape()[0] - 1}) {
    const Tensor image = image_of(x, i), result = image_of(y, i);
    const Tensor ours = empty_like(result), exact = Tensor::empty(result.shape(), {DType::f32, y.device()});
    kernels::conv2d_forward(context, own, image, w, bias, ours);
    kernels::conv2d_forward(context, own, in_f32(context, image), in_f32(context, w), in_f32(context, bias),
                            exact);
    const std::vector<double> a = result.to_vector(), b = ours.to_vector(), c = exact.to_vector();
    for (std::size_t k = 0; k < c.size(); ++k) {
      theirs_squared += (a[k] - c[k]) * (a[k] - c[k]);
      ours_squared += (b[k] - c[k]) * (b[k] - c[k]);
    }
  }
  if (ours_squared > 0 || std::isnan(theirs_squared)) return std::sqrt(theirs_squared / ours_squared);
  return theirs_squared > 0 ? std::numeric_limits<double>::infinity() : 0;
}

}  // namespace athanor::cuda
