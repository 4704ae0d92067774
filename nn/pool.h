#pragma once

#include <cstdint>

#include "autograd/pool.h"
#include "nn/module.h"

namespace athanor::nn {

/// A square window; stride 0 means the window's size.
inline Pool2dParams square_window(std::int64_t window, std::int64_t stride = 0, std::int64_t padding = 0) {
  const std::int64_t step = stride ? stride : window;
  return {.window = {window, window}, .stride = {step, step}, .padding = {padding, padding}};
}

/// The largest value of each window: [N, H, W, C] -> [N, P, Q, C].
class MaxPool2d final : public Module {
 public:
  explicit MaxPool2d(std::int64_t window, std::int64_t stride = 0, std::int64_t padding = 0)
      : params_(square_window(window, stride, padding)) {}
  explicit MaxPool2d(const Pool2dParams& params) : params_(params) {}
  Tensor forward(const Tensor& x) override { return max_pool2d(x, params_); }

 private:
  Pool2dParams params_;
};

/// Mean of each window.
class AvgPool2d final : public Module {
 public:
  explicit AvgPool2d(std::int64_t window, std::int64_t stride = 0, std::int64_t padding = 0)
      : params_(square_window(window, stride, padding)) {}
  explicit AvgPool2d(const Pool2dParams& params) : params_(params) {}
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, params_); }

 private:
  Pool2dParams params_;
};

/// Mean of size x size nearly equal windows, for any image size; 1 is global average pooling.
class AdaptiveAvgPool2d final : public Module {
 public:
  explicit AdaptiveAvgPool2d(std::int64_t size = 1) : size_(size) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, size_, size_); }

 private:
  std::int64_t size_;
};

}  // namespace athanor::nn
