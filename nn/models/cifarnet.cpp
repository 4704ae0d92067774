#include "nn/models/cifarnet.h"

#include <algorithm>
#include <cmath>

#include "autograd/elementwise.h"
#include "autograd/shape.h"
#include "kernels/copy.h"
#include "kernels/on_device.h"
#include "nn/conv_norm.h"
#include "nn/whitening.h"

namespace athanor::nn {
namespace {

constexpr std::int64_t kPatch = 2;
constexpr double kLogitScale = 1.0 / 256;

// Running statistics with weight 0.4, and no scale: the next convolution's weights are renormalised anyway.
constexpr BatchNormOptions kCifarNorm{
    .eps = 1e-12, .momentum = 0.4, .activation = Activation::gelu, .scale = false};

// PyTorch's default, with the identity on the first channels.
void identity_first(const Tensor& w, RandomKey key) {
  init::kaiming_uniform(w, key, init::leaky_relu_gain(std::sqrt(5.0)));
  init::dirac(w, true);
}

// PyTorch's default, divided by the standard deviation of the drawn values.
void unit_deviation(const Tensor& w, RandomKey key) {
  init::kaiming_uniform(w, key, init::leaky_relu_gain(std::sqrt(5.0)));
  const std::vector<double> values = w.detach().to_vector();
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double deviation =
      std::sqrt(squares / static_cast<double>(std::max<std::size_t>(values.size(), 2) - 1));
  const double bound = 1 / std::sqrt(static_cast<double>(w.dim(1))) / deviation;
  init::uniform(w, key, -bound, bound);  // the same numbers, scaled
}

// Side of the image that reaches the head, in pixels.
std::int64_t final_side(std::int64_t image_size) {
  return (image_size - kPatch + 1) / 2 / 2 / 2 / 3;
}

}  // namespace

/// conv, pool, norm + GELU, conv, norm + GELU. The pool comes before the norm: a quarter of the work.
class CifarNet::Group final : public Module {
 public:
  Group(std::int64_t in, std::int64_t out)
      : conv1(in, out, 3, conv()), bn1(out, kCifarNorm), conv2(out, out, 3, conv(), kCifarNorm) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("conv2", conv2.conv);
    register_module("bn2", conv2.norm);
  }
  Tensor forward(const Tensor& x) override {
    return conv2(max_pool_norm(conv1(x), square_window(2), bn1.arguments()));
  }

 private:
  static Conv2dOptions conv() { return {.padding = 1, .bias = false, .weight_init = identity_first}; }

  Conv2d conv1;
  BatchNorm bn1;
  ConvNorm conv2;
};

CifarNet::CifarNet(const ModelOptions& options, std::int64_t width)
    : whiten_(options.in_channels, 2 * kPatch * kPatch * options.in_channels, kPatch,
              {.activation = Activation::gelu, .frozen_weight = true}),
      head_(final_side(options.image_size) * final_side(options.width()) * 4 * width, options.classes,
            {.bias = false,
             .image = {final_side(options.image_size), final_side(options.width()), 4 * width},
             .weight_init = unit_deviation}) {
  ATH_CHECK(width >= 1, "CifarNet: width must be at least 1, but got {}", width);
  register_module("whiten", whiten_);
  std::int64_t channels = whiten_.weight().dim(0);
  for (const std::int64_t out : {width, 4 * width, 4 * width}) {
    groups_.push_back(std::make_unique<Group>(channels, out));
    register_module(fmt::format("group{}", groups_.size()), *groups_.back());
    channels = out;
  }
  register_module("head", head_);
}

Tensor CifarNet::forward(const Tensor& x) {
  Tensor y = whiten_(x);                              // [N, 31, 31, 24]
  for (const auto& group : groups_) y = (*group)(y);  // 15, 7, 3 pixels a side
  return affine(head_(flatten(pool_(y))), kLogitScale);
}

void CifarNet::whiten(const Tensor& images) {
  ATH_CHECK(images.rank() == 4 && images.dim(3) == whiten_.weight().dim(3),
            "CifarNet: images must be [N, H, W, {}], but got {}", whiten_.weight().dim(3), images.shape());
  const Tensor weight = whiten_.weight().detach();
  const Tensor filters = whitening_filters(images, kPatch).to(weight.device());
  on_device(weight.device(), [&](auto& context) { kernels::copy(context, filters, weight); });
  weight.bump_version();
}

}  // namespace athanor::nn
