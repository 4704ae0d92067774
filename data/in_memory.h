#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset_view.h"

namespace athanor {

/// Contiguous images in memory, and their labels. The readers of small formats return one.
class InMemoryDataset : public Dataset {
 public:
  /// pixels: [N, H, W, C] bytes; labels: N, each in [0, classes). Throws ArgumentError if they do not match.
  InMemoryDataset(const ImageSpec& spec, std::vector<std::uint8_t> pixels, std::vector<std::int64_t> labels);
  /// Reads all of `source`, whose images have one size: decodes every file once. Class names are the
  /// source's, unless given, one per class.
  explicit InMemoryDataset(const Dataset& source, std::vector<std::string> class_names = {});

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override;
  std::uint64_t sample_id(std::int64_t index) const override;
  bool resident() const override { return true; }

  std::span<const std::uint8_t> pixels() const { return pixels_; }
  std::span<const std::int64_t> labels() const { return labels_; }

 private:
  ImageSpec spec_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::int64_t> labels_;
  std::vector<std::string> class_names_;
};

/// The images `indices` of another data set, in that order: a split, or a part for experiments.
class Subset final : public DatasetView {
 public:
  Subset(std::shared_ptr<const Dataset> data, std::vector<std::int64_t> indices);

  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  void will_need(std::int64_t first, std::int64_t count) const override;

 private:
  std::int64_t in_source(std::int64_t index) const override;

  std::vector<std::int64_t> indices_;
};

/// Draws a fixed `fraction` of the samples for validation: {training part, validation part}, each in the
/// source's order. fraction in (0, 1).
std::pair<std::unique_ptr<Dataset>, std::unique_ptr<Dataset>> split(std::shared_ptr<const Dataset> source,
                                                                    double fraction);

}  // namespace athanor
