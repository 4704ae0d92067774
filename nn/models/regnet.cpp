#include "nn/models/regnet.h"

#include <optional>

#include "autograd/pool.h"
#include "autograd/shape.h"
#include "nn/models/detail/conv_options.h"
#include "nn/squeeze_excitation.h"

namespace athanor::nn {
namespace {

constexpr std::int64_t kStemWidth = 32;
constexpr std::int64_t kSqueeze = 4;  // a block's input channels for each of its squeezed ones

/// 1x1, 3x3 in groups, squeeze and excitation, 1x1.
class RegNetBranch final : public Module {
 public:
  RegNetBranch(std::int64_t in, std::int64_t out, std::int64_t stride, std::int64_t groups)
      : a_(in, out, 1, unbiased(1, 0), kNormRelu),
        b_(out, out, 3, unbiased(stride, 1, groups), kNormRelu),
        se_(out, in / kSqueeze, {.weight_init = init::kaiming_fan_out}),
        c_(out, out, 1, unbiased(1, 0), kNormRelu) {
    register_module("a", a_);
    register_module("b", b_);
    register_module("se", se_);
    register_module("c", c_);
  }
  Tensor forward(const Tensor& x) override { return (*this)(x, {}); }
  using Module::operator();
  /// relu(branch(x) + residual)
  Tensor operator()(const Tensor& x, const DeferredNorm& residual) {
    return c_(se_(b_(a_.deferred(x), {})), residual);
  }

 private:
  ConvNorm a_, b_;
  SqueezeExcitation se_;
  ConvNorm c_;
};

/// relu(branch(x) + shortcut), where the shortcut is x or, if shapes differ, norm(1x1 conv(x)).
class RegNetBlock final : public Module {
 public:
  RegNetBlock(std::int64_t in, std::int64_t out, std::int64_t stride, std::int64_t groups)
      : f_(in, out, stride, groups) {
    if (stride != 1 || in != out) register_module("proj", proj_.emplace(in, out, 1, unbiased(stride, 0)));
    register_module("f", f_);
  }
  Tensor forward(const Tensor& x) override { return f_(x, proj_ ? proj_->deferred(x) : DeferredNorm(x)); }

 private:
  std::optional<ConvNorm> proj_;
  RegNetBranch f_;
};

}  // namespace

RegNet::RegNet(const ModelOptions& options, const RegNetOptions& more)
    : stem(options.in_channels, kStemWidth, 3, unbiased(2, 1), kNormRelu),
      fc(more.widths.back(), options.classes,
         {.weight_init = [](const Tensor& w, RandomKey key) { init::normal(w, key, 0, 0.01); },
          .bias_init = init::zeros}) {
  std::int64_t channels = kStemWidth;
  for (std::size_t i = 0; i < more.blocks.size(); ++i) {
    auto stage = std::make_unique<Sequential>();
    const std::int64_t width = more.widths[i];
    for (int j = 0; j < more.blocks[i]; ++j) {
      stage->add_named<RegNetBlock>(fmt::format("block{}-{}", i + 1, j), channels, width, j == 0 ? 2 : 1,
                                    width / more.group_width);
      channels = width;
    }
    trunk_output.append(fmt::format("block{}", i + 1), std::move(stage));
  }
  register_module("stem", stem);
  register_module("trunk_output", trunk_output);
  register_module("fc", fc);
}

Tensor RegNet::forward(const Tensor& x) {
  return fc(flatten(adaptive_avg_pool2d(trunk_output(stem(x)), 1, 1)));
}

}  // namespace athanor::nn
