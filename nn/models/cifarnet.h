#pragma once

#include <memory>
#include <vector>

#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/linear.h"
#include "nn/models/model.h"
#include "nn/pool.h"

namespace athanor::nn {

/// The network of the CIFAR-10 speed records: a frozen whitening convolution with a trained bias; three
/// groups {conv, max pool, norm, GELU, conv, norm, GELU} of 64, 256 and 256 channels; max pool; a linear head
/// over 256 channels. 1,971,640 values, 288 of them frozen. `width` replaces the 64, and four times it the
/// 256. Convolutions are initialised to the identity on
/// their first channels. Source: Jordan 2024, arXiv:2404.00498 (airbench94, with the later Muon variant's
/// widths and momentum).
class CifarNet final : public Module {
 public:
  explicit CifarNet(const ModelOptions& options, std::int64_t width = 64);
  Tensor forward(const Tensor& x) override;

  /// Sets the whitening filters from normalised training images [N, H, W, C]; the recipe passes the first
  /// 5,000. Before that they are random.
  void whiten(const Tensor& images);

 private:
  class Group;

  Conv2d whiten_;
  std::vector<std::unique_ptr<Module>> groups_;
  MaxPool2d pool_{3};
  Linear head_;
};

}  // namespace athanor::nn
