#pragma once

#include <cstdint>
#include <vector>

#include "data/sample_row.h"
#include "tensor/tensor.h"

namespace athanor::detail {

/// All images of a set on a device. As a data set it has only the other fields, without pixels.
class ResidentImages final : public Dataset {
 public:
  /// Throws OutOfMemoryError, and what `source` throws.
  ResidentImages(const Dataset& source, Device device);

  std::int64_t size() const override { return others_.rows; }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<FieldSpec> fields() const override { return others_.fields; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
  void read_fields(std::int64_t index, std::int64_t epoch, SampleRow& row) const override;
  bool resident() const override { return true; }
  /// [N, H, W, C] u8
  const Tensor& images() const { return images_; }

 private:
  ImageSpec spec_;
  Tensor images_;
  RowLayout others_;
  std::vector<std::byte> memory_;
};

}  // namespace athanor::detail
