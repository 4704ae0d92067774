#include "nn/models/unet.h"

#include "autograd/shape.h"
#include "nn/conv_norm.h"
#include "nn/conv_transpose2d.h"
#include "nn/sequential.h"
#include "nn/upsample.h"

namespace athanor::nn {
namespace {

void fan_in_normal(const Tensor& w, RandomKey key) {
  init::kaiming_normal(w, key);
}

/// Two 3x3 convolutions with batch norm and ReLU.
class DoubleConv final : public Module {
 public:
  DoubleConv(std::int64_t in, std::int64_t out)
      : conv1(in, out, 3, conv(), kNormRelu), conv2(out, out, 3, conv(), kNormRelu) {
    register_module("conv1", conv1.conv);
    register_module("bn1", conv1.norm);
    register_module("conv2", conv2.conv);
    register_module("bn2", conv2.norm);
  }
  Tensor forward(const Tensor& x) override { return conv2(conv1.deferred(x), {}); }

 private:
  static constexpr BatchNormOptions kNormRelu{.activation = Activation::relu};
  static Conv2dOptions conv() { return {.padding = 1, .bias = false, .weight_init = fan_in_normal}; }

  ConvNorm conv1, conv2;
};

/// [N, H, W, 2 C] -> [N, 2 H, 2 W, C].
std::unique_ptr<Module> enlargement(std::int64_t channels, bool bilinear) {
  if (!bilinear)
    return std::make_unique<ConvTranspose2d>(2 * channels, channels, 2, ConvTranspose2dOptions{.stride = 2});
  auto layers = std::make_unique<Sequential>();
  layers->add<Upsample>(2.0, Interpolation::bilinear).add<Conv2d>(2 * channels, channels, 1);
  return layers;
}

}  // namespace

UNet::UNet(const ModelOptions& options, const UNetOptions& more)
    : depth_(more.depth), head_(more.width, options.classes ? options.classes : 2, 1) {
  ATH_CHECK(depth_ >= 1 && depth_ <= kMaxDepth, "UNet: depth must be in [1, {}], but got {}", kMaxDepth,
            depth_);
  std::int64_t in = options.in_channels ? options.in_channels : 3, width = more.width;
  for (int i = 0; i < depth_; ++i, in = width, width *= 2) {
    down_[i] = std::make_unique<DoubleConv>(in, width);
    register_module(fmt::format("down{}", i + 1), *down_[i]);
  }
  bottom_ = std::make_unique<DoubleConv>(in, width);
  register_module("bottom", *bottom_);
  for (int i = depth_ - 1; i >= 0; --i) {
    width /= 2;
    enlarge_[i] = enlargement(width, more.bilinear);
    up_[i] = std::make_unique<DoubleConv>(2 * width, width);
    register_module(fmt::format("enlarge{}", i + 1), *enlarge_[i]);
    register_module(fmt::format("up{}", i + 1), *up_[i]);
  }
  register_module("head", head_);
}

Tensor UNet::forward(const Tensor& x) {
  const std::int64_t multiple = std::int64_t{1} << depth_;
  ATH_CHECK(x.rank() == 4 && x.dim(1) % multiple == 0 && x.dim(2) % multiple == 0,
            "UNet: images must be [N, H, W, C] with H and W multiples of {}, but got {}", multiple,
            x.shape());
  std::array<Tensor, kMaxDepth> skips;
  Tensor y = x;
  for (int i = 0; i < depth_; ++i) {
    skips[i] = (*down_[i])(y);
    y = pool_(skips[i]);
  }
  y = (*bottom_)(y);
  for (int i = depth_ - 1; i >= 0; --i)
    y = (*up_[i])(cat(std::array<Tensor, 2>{skips[i], (*enlarge_[i])(y)}, 3));
  return head_(y);
}

}  // namespace athanor::nn
