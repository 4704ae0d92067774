#pragma once

#include <cstdint>
#include <span>

#include "trainer/metrics/confusion.h"
#include "trainer/metrics/kept_predictions.h"

namespace athanor {

// Figures of classes of which an image may have any number. Scores are logits: a class's probability is the
// sigmoid of its score. A target of 0.5 or more says that the image has the class. A NaN among the scores
// makes figures NaN.

/// The probability of a class with this logit.
double probability_of(double logit);

/// The average precision of one class: the sum over thresholds of precision times the step in recall, without
/// interpolation; equal scores share a threshold. NaN without images of the class. O(N log N).
/// Source: as average_precision_score() of scikit-learn.
double average_precision(std::span<const double> scores, std::span<const double> targets);

/// The probability from which on the class is said to be there, such that F1 on these images is highest: in
/// the middle between two scores; of several with equal F1 the highest. 0.5 without images of the class.
double best_threshold(std::span<const double> scores, std::span<const double> targets);

/// How a class does with a threshold of its probability.
ClassFigures figures_at(double threshold, std::span<const double> scores, std::span<const double> targets);

/// F1 over all images and classes together, and its mean over classes that occur in images or predictions; 0
/// without any.
double micro_f1(std::span<const ClassFigures> classes);
double macro_f1(std::span<const ClassFigures> classes);

/// Of a classifier of several labels: mAP, the mean of average precisions over classes with images; f1_micro
/// and f1_macro at a probability of 0.5; tuned_f1_micro and tuned_f1_macro at the best threshold of each
/// class on these images; and these, threshold/0, ...
class SeveralLabels final : public KeptPredictions {
 public:
  using KeptPredictions::KeptPredictions;
  Kind kind() const override { return kind_named("several_labels"); }

 private:
  void figures(const PredictedColumns& measured, const Emit& emit) const override;
};

}  // namespace athanor
