#include "nn/group_norm.h"

namespace athanor::nn {
namespace {

void reset_affine(const Tensor& weight, const Tensor& bias) {
  if (!weight.defined()) return;
  init::constant(weight, 1);
  init::constant(bias, 0);
}

}  // namespace

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels, double eps, bool affine)
    : groups_(groups), channels_(channels), eps_(eps) {
  ATH_CHECK(groups > 0 && channels > 0 && channels % groups == 0,
            "GroupNorm: groups must divide the channels, but got {} for {}", groups, channels);
  constexpr ParameterOptions kNorm{.keep_f32 = true, .decay = false};
  if (affine) {
    weight_ = register_parameter("weight", Tensor::zeros({channels}), kNorm);
    bias_ = register_parameter("bias", Tensor::zeros({channels}), kNorm);
  }
  GroupNorm::reset(InitKeys(0, ""));
}

Tensor GroupNorm::forward(const Tensor& x) {
  ATH_CHECK(x.rank() >= 2 && x.dim(-1) == channels_, "GroupNorm: x must be [N, ..., {}], but got {}",
            channels_, x.shape());
  return group_norm(x, groups_, weight_, bias_, eps_);
}

void GroupNorm::reset(const InitKeys&) {
  reset_affine(weight_, bias_);
}

InstanceNorm2d::InstanceNorm2d(std::int64_t channels, double eps, bool affine)
    : channels_(channels), eps_(eps) {
  ATH_CHECK(channels > 0, "InstanceNorm2d: channels must be > 0, but got {}", channels);
  constexpr ParameterOptions kNorm{.keep_f32 = true, .decay = false};
  if (affine) {
    weight_ = register_parameter("weight", Tensor::zeros({channels}), kNorm);
    bias_ = register_parameter("bias", Tensor::zeros({channels}), kNorm);
  }
  InstanceNorm2d::reset(InitKeys(0, ""));
}

Tensor InstanceNorm2d::forward(const Tensor& x) {
  ATH_CHECK(x.rank() == 4 && x.dim(-1) == channels_, "InstanceNorm2d: x must be [N, H, W, {}], but got {}",
            channels_, x.shape());
  return instance_norm(x, weight_, bias_, eps_);
}

void InstanceNorm2d::reset(const InitKeys&) {
  reset_affine(weight_, bias_);
}

}  // namespace athanor::nn
