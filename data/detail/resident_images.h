#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"
#include "tensor/tensor.h"

namespace athanor::detail {

/// All images of a set on a device. As a data set it has the labels alone: no pixels are left to read.
class ResidentImages final : public ImageDataset {
 public:
  /// Throws OutOfMemoryError, and what `source` throws.
  ResidentImages(const Dataset& source, Device device);

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  const ImageSpec& spec() const override { return spec_; }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t>) const override {
    return labels_[static_cast<std::size_t>(index)];
  }
  bool resident() const override { return true; }
  /// [N, H, W, C] u8
  const Tensor& images() const { return images_; }

 private:
  ImageSpec spec_;
  Tensor images_;
  std::vector<std::int64_t> labels_;
};

}  // namespace athanor::detail
