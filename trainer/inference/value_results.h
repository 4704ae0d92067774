#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/inference/detail/collected_results.h"
#include "trainer/metrics/number_errors.h"

namespace athanor {

/// Of a model of numbers (LabelKind::values), in their units: mean absolute error, root mean squared error
/// and R2 of each, and the means over all (trainer/metrics/number_errors.h).
class ValueResults final : public detail::CollectedResults {
 public:
  using CollectedResults::CollectedResults;

  /// NaN without images.
  NumberFigures figures(std::int64_t output) const;
  NumberFigures mean() const;

  double score() const override { return 100 * mean().r2; }
  const char* score_name() const override { return "R2"; }
  std::string headline(const ModelInfo& model) const override;
  std::string text(const Evaluated& of) const override;
  std::string json(const Evaluated& of) const override;

 private:
  /// Of each image: the root mean square of its errors, each in proportion to the usual error of that output.
  std::vector<double> errors() const;
};

}  // namespace athanor
