#pragma once

#include <cstdint>
#include <string>

#include "data/loader.h"
#include "trainer/inference/evaluation.h"
#include "trainer/inference/model_file.h"

namespace athanor {

/// What is measured of a model on labelled images: a class for each task, of which `athanor evaluate` prints
/// and writes the results.
class Results {
 public:
  virtual ~Results() = default;
  /// outputs [N, K] of the network for a prepared batch of N; samples as in Evaluation::add(). Throws
  /// ArgumentError on other shapes.
  virtual void add(const Tensor& outputs, const Batch& batch, const Tensor& samples) = 0;
  virtual std::int64_t images() const = 0;
  /// The figure by which two models are compared, in percent, the higher the better: of classes the top-1
  /// accuracy, of labels the mean average precision, of numbers R2.
  virtual double score() const = 0;
  /// "top-1", "mAP" or "R2".
  virtual const char* score_name() const = 0;

  /// The most important figures in a line, and in another one how they compare with those that the run of the
  /// model reported, if it did.
  virtual std::string headline(const ModelInfo& model) const = 0;
  /// All as plain-text tables.
  virtual std::string text(const Evaluated& of) const = 0;
  /// All as one JSON object, in a line.
  virtual std::string json(const Evaluated& of) const = 0;
  /// As a picture; empty if the task has none.
  virtual std::string svg() const { return {}; }
};

}  // namespace athanor
