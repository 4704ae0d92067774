#include "nn/models/densenet.h"

#include <vector>

#include "autograd/shape.h"
#include "nn/conv_norm.h"
#include "nn/linear.h"
#include "nn/models/detail/conv_options.h"
#include "nn/pool.h"
#include "nn/sequential.h"

namespace athanor::nn {
namespace {

constexpr std::int64_t kBottleneck = 4;  // channels between a layer's convolutions, in units of the growth

Conv2dOptions dense_conv(std::int64_t stride, std::int64_t padding) {
  Conv2dOptions options = unbiased(stride, padding);
  options.weight_init = [](const Tensor& w, RandomKey key) { init::kaiming_normal(w, key); };
  return options;
}

/// x and, behind its channels, conv2(relu(norm2(conv1(relu(norm1(x)))))).
class DenseLayer final : public Module {
 public:
  DenseLayer(std::int64_t in, std::int64_t growth)
      : norm1_(in, kNormRelu),
        conv1_(in, kBottleneck * growth, 1, dense_conv(1, 0), kNormRelu),
        conv2_(kBottleneck * growth, growth, 3, dense_conv(1, 1)) {
    register_module("norm1", norm1_);
    register_module("conv1", conv1_.conv);
    register_module("norm2", conv1_.norm);
    register_module("conv2", conv2_);
  }
  Tensor forward(const Tensor& x) override { return cat({x, conv2_(conv1_(norm1_(x)))}, 3); }

 private:
  BatchNorm norm1_;
  ConvNorm conv1_;
  Conv2d conv2_;
};

}  // namespace

class DenseNet::Features final : public Module {
 public:
  Features(std::int64_t in_channels, const DenseNetOptions& more)
      : stem_(in_channels, more.width, 7, dense_conv(2, 3), kNormRelu), channels_(more.width) {
    register_module("conv0", stem_.conv);
    register_module("norm0", stem_.norm);
    for (std::size_t i = 0; i < more.layers.size(); ++i) {
      Sequential& block = add<Sequential>(fmt::format("denseblock{}", i + 1));
      for (int j = 0; j < more.layers[i]; ++j, channels_ += more.growth)
        block.add_named<DenseLayer>(fmt::format("denselayer{}", j + 1), channels_, more.growth);
      if (i + 1 == more.layers.size()) break;
      Sequential& half = add<Sequential>(fmt::format("transition{}", i + 1));
      half.add_named<BatchNorm>("norm", channels_, kNormRelu);
      half.add_named<Conv2d>("conv", channels_, channels_ / 2, 1, dense_conv(1, 0));
      half.add_named<AvgPool2d>("pool", 2);
      channels_ /= 2;
    }
    add<BatchNorm>("norm5", channels_, kNormRelu);
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = stem_.pooled(x, square_window(3, 2, 1));
    for (const auto& part : parts_) y = (*part)(y);
    return y;
  }
  std::int64_t channels() const { return channels_; }

 private:
  template <class M, class... Args> M& add(const std::string& name, const Args&... arguments) {
    parts_.push_back(std::make_unique<M>(arguments...));
    return register_module(name, static_cast<M&>(*parts_.back()));
  }

  ConvNorm stem_;
  std::vector<std::unique_ptr<Module>> parts_;
  std::int64_t channels_;
};

DenseNet::DenseNet(const ModelOptions& options, const DenseNetOptions& more)
    : features_(std::make_unique<Features>(options.in_channels, more)),
      classifier_(std::make_unique<Linear>(features_->channels(), options.classes,
                                           LinearOptions{.bias_init = init::zeros})) {
  register_module("features", *features_);
  register_module("classifier", *classifier_);
}

DenseNet::~DenseNet() = default;

Tensor DenseNet::forward(const Tensor& x) {
  return (*classifier_)(flatten(adaptive_avg_pool2d((*features_)(x), 1, 1)));
}

}  // namespace athanor::nn
