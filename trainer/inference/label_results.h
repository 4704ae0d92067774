#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/inference/detail/collected_results.h"
#include "trainer/metrics/confusion.h"

namespace athanor {

/// Of a model of several labels (LabelKind::multilabel), whose outputs are logits: average precision, and
/// precision, recall and F1 at the model's thresholds (trainer/metrics/several_labels.h).
class LabelResults final : public detail::CollectedResults {
 public:
  /// As CollectedResults().
  LabelResults(const ModelInfo& model, std::vector<std::int64_t> columns, std::int64_t worst);

  /// Binary cross entropy without weights, the mean over images and classes. NaN without images.
  double loss() const;
  /// The mean of average precisions over classes with images; 0 without any.
  double mean_average_precision() const;
  double average_precision_of(std::int64_t output) const;
  /// At its threshold.
  ClassFigures figures(std::int64_t output) const;
  std::vector<ClassFigures> figures_of_all() const;
  /// The share of images of which all labels are right.
  double exact() const;

  double score() const override { return 100 * mean_average_precision(); }
  const char* score_name() const override { return "mAP"; }
  std::string headline(const ModelInfo& model) const override;
  std::string text(const Evaluated& of) const override;
  std::string json(const Evaluated& of) const override;

 private:
  bool has(std::int64_t output, std::size_t row) const;
  bool says(std::int64_t output, std::size_t row) const;
  /// Of each image: its loss if a label is wrong, else 0.
  std::vector<double> mistakes() const;
  double loss_of(std::size_t row) const;

  std::vector<double> thresholds_;
};

}  // namespace athanor
