#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"
#include "trainer/class_figures.h"

namespace athanor {

/// What a classifier says of images, held against what they show: loss, accuracy, the figures of each class,
/// which classes are taken for which, and the worst mistakes. Batches may come in any order and of any size:
/// loss and accuracy are those that a validation of the same losses and logits reports, bit for bit.
class Evaluation {
 public:
  static constexpr std::int64_t kNone = -1;  ///< what a model says whose logits are not numbers

  /// `names` of the classes, or none. An image is among the top where fewer than `top` classes are likelier
  /// than its own. The `worst` mistakes are kept.
  explicit Evaluation(std::int64_t classes, std::vector<std::string> names = {}, std::int64_t top = 5,
                      std::int64_t worst = 10);

  /// What a confusion matrix alone tells, of classes with these names: no losses and no mistakes. Throws
  /// ArgumentError on a cell of other classes, or with fewer than 0 images.
  Evaluation(std::vector<std::string> names,
             const std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>& confusion);

  /// losses [N] f32|f64; logits [N, C] floating; labels [N] i64 in [0, C); samples [N] i64: their indices in
  /// the data set. Of equal logits the first counts as the largest, and a row with a NaN as wrong. Throws
  /// ArgumentError on other shapes or labels.
  void add(const Tensor& losses, const Tensor& logits, const Tensor& labels, const Tensor& samples);

  std::int64_t classes() const { return static_cast<std::int64_t>(figures_.size()); }
  std::int64_t images() const { return images_; }
  std::int64_t top() const { return top_; }
  // NaN where there are no images.
  double loss() const { return mean(loss_); }
  double top1() const { return mean(static_cast<double>(right_)); }
  double top_k() const { return mean(static_cast<double>(among_top_)); }

  const ClassFigures& figures(std::int64_t index) const {
    return figures_.at(static_cast<std::size_t>(index));
  }
  /// The class's name, or its index; "none" for kNone.
  std::string name(std::int64_t index) const;

  /// Images of each pair {what it shows, what the model says} that there are any of.
  using Confusion = std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>;
  const Confusion& confusion() const { return confusion_; }

  struct Mistake {
    std::int64_t sample = 0, label = 0, predicted = 0;
    double loss = 0;
    double probability = 0;  ///< of what the model says
  };
  std::int64_t mistakes() const { return images_ - right_; }
  /// Those of the largest loss, the largest first; of equal ones in the order of samples.
  const std::vector<Mistake>& worst() const { return worst_; }

 private:
  double mean(double sum) const;
  void keep(const Mistake& mistake);

  std::vector<std::string> names_;
  std::int64_t top_, most_;
  std::int64_t images_ = 0, right_ = 0, among_top_ = 0;
  double loss_ = 0;
  std::vector<ClassFigures> figures_;
  Confusion confusion_;
  std::vector<Mistake> worst_;
};

/// What was evaluated, for who reads of it.
struct Evaluated {
  std::string model = {}, data = {};
  /// Where a sample comes from, "photos/cat/7.jpg"; unset or empty: its index says all.
  std::function<std::string(std::int64_t sample)> where = {};
};

/// The figures as tables of plain text, to be read: of up to 50 classes each with its precision and recall,
/// and of up to 20 the confusion matrix; of more the worst ones.
std::string text_of(const Evaluation& evaluation, const Evaluated& of = {});
/// All of it as one JSON object:
///     {"model", "data", "images", "loss", "top1", "top5", "classes": [{"class", "index", "images",
///     "predicted",
///      "precision", "recall"}], "confusion": [{"actual", "predicted", "images"}], "mistakes": [...]}
/// where "confusion" has the cells that are not 0, by index, and null stands for what cannot be said.
std::string json_of(const Evaluation& evaluation, const Evaluated& of = {});
/// The confusion matrix as an SVG picture: a row for what images show, a column for what the model says.
/// `inlined`: for a page, which gives the colours and says what it is.
std::string svg_of(const Evaluation& evaluation, bool inlined = false);

}  // namespace athanor
