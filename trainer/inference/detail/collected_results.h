#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/inference/results.h"
#include "trainer/metrics/kept_predictions.h"

namespace athanor::detail {

/// Results of a task whose labels are the field kLabelsField: what the network says of each image, and what
/// is true, for figures over all of them. Outputs are those of the weights in the file: with a mean and a
/// scale in ModelInfo, they are brought to the unit of the labels here. Takes 16 bytes for each number.
class CollectedResults : public Results {
 public:
  /// `columns`: for each output of the model its place among the labels of a sample.
  CollectedResults(const ModelInfo& model, std::vector<std::int64_t> columns, std::int64_t worst);

  void add(const Tensor& outputs, const Batch& batch, const Tensor& samples) final;
  std::int64_t images() const final { return std::ssize(samples_); }

 protected:
  std::int64_t outputs() const { return std::ssize(columns_); }
  /// The output's name, or its number.
  std::string name(std::int64_t output) const;
  const std::vector<double>& said(std::int64_t output) const {
    return collected_.predictions[static_cast<std::size_t>(output)];
  }
  const std::vector<double>& is(std::int64_t output) const {
    return collected_.targets[static_cast<std::size_t>(output)];
  }
  std::int64_t sample(std::size_t row) const { return samples_[row]; }
  /// The rows with the largest errors above 0, one for each image, in descending order; NaN counts as the
  /// largest.
  std::vector<std::size_t> worst_by(const std::vector<double>& errors) const;
  /// "photos/7.jpg", or "image 7".
  std::string where(const Evaluated& of, std::size_t row) const;

 private:
  std::vector<std::string> names_;
  std::vector<double> mean_, scale_;  // of outputs; empty: 0 and 1
  std::vector<std::int64_t> columns_;
  std::int64_t worst_;
  PredictedColumns collected_;
  std::vector<std::int64_t> samples_;
};

}  // namespace athanor::detail
