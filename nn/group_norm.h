#pragma once

#include <cstdint>

#include "autograd/norm.h"
#include "nn/module.h"

namespace athanor::nn {

/// Normalises each image over groups of channels: see group_norm() in autograd/norm.h. Parameters weight,
/// bias [channels] f32 if affine.
class GroupNorm final : public Module {
 public:
  GroupNorm(std::int64_t groups, std::int64_t channels, double eps = 1e-5, bool affine = true);

  Tensor forward(const Tensor& x) override;

 private:
  void reset(const InitKeys& keys) override;

  std::int64_t groups_, channels_;
  double eps_;
  Tensor weight_, bias_;
};

/// Normalises each channel of each image [N, H, W, C]: see instance_norm() in autograd/norm.h. As in PyTorch,
/// without parameters unless affine. No running statistics: evaluation equals training.
class InstanceNorm2d final : public Module {
 public:
  explicit InstanceNorm2d(std::int64_t channels, double eps = 1e-5, bool affine = false);

  Tensor forward(const Tensor& x) override;

 private:
  void reset(const InitKeys& keys) override;

  std::int64_t channels_;
  double eps_;
  Tensor weight_, bias_;
};

}  // namespace athanor::nn
