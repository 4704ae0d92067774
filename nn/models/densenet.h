#pragma once

#include <array>

#include "nn/models/model.h"

namespace athanor::nn {

/// The defaults are DenseNet-121.
struct DenseNetOptions {
  std::array<int, 4> layers{6, 12, 24, 16};  ///< of each dense block
  std::int64_t growth = 32;                  ///< channels that a layer adds
  std::int64_t width = 64;                   ///< channels before the first block
};

/// Each layer reads the results of all before it in its block, joined along the channels. Names, initial
/// values and 7,978,856 parameters as in torchvision's densenet121. Images of at least 29 pixels a side.
/// Source: Huang, Liu, van der Maaten and Weinberger 2017, arXiv:1608.06993, table 1 (DenseNet-BC).
class DenseNet final : public Module {
 public:
  explicit DenseNet(const ModelOptions& options, const DenseNetOptions& more = {});
  ~DenseNet() override;
  Tensor forward(const Tensor& x) override;

 private:
  class Features;

  std::unique_ptr<Features> features_;
  std::unique_ptr<Module> classifier_;
};

}  // namespace athanor::nn
