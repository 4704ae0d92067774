#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"
#include "trainer/metrics/confusion.h"

namespace athanor {

class MetricSums;

/// Results of a classifier on labelled images: loss, accuracy, figures per class, the confusion matrix, and
/// the worst mistakes. Batches may have any order and size: loss and accuracy equal those of a validation
/// with the same losses and logits, bit for bit.
class Evaluation {
 public:
  static constexpr std::int64_t kNone = -1;  ///< the prediction if logits are not numbers

  /// `names` of the classes, or none. An image counts for top-k if fewer than `top` classes are likelier than
  /// its own. Keeps the `worst` mistakes.
  explicit Evaluation(std::int64_t classes, std::vector<std::string> names = {}, std::int64_t top = 5,
                      std::int64_t worst = 10);

  /// The results available from a confusion matrix of classes with these names: no losses and no mistakes.
  /// Throws ArgumentError on a cell of other classes, or with a negative count.
  Evaluation(std::vector<std::string> names,
             const std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>& confusion);

  /// losses [N] f32|f64; logits [N, C] floating; labels [N] i64 in [0, C); samples [N] i64: their indices in
  /// the data set; -1: the row does not count. The first of equal logits counts as the largest; a row with a
  /// NaN counts as wrong. Throws ArgumentError on other shapes or labels.
  void add(const Tensor& losses, const Tensor& logits, const Tensor& labels, const Tensor& samples);

  std::int64_t classes() const { return static_cast<std::int64_t>(figures_.size()); }
  std::int64_t images() const { return images_; }
  std::int64_t top() const { return top_; }
  // NaN without images.
  double loss() const { return loss_; }
  double top1() const { return static_cast<double>(right_) / static_cast<double>(images_); }
  double top_k() const { return top_k_; }

  const ClassFigures& figures(std::int64_t index) const {
    return figures_.at(static_cast<std::size_t>(index));
  }
  /// The class's name, or its index; "none" for kNone.
  std::string name(std::int64_t index) const;

  /// Number of images of each pair {actual class, predicted class} that occurs.
  using Confusion = std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>;
  const Confusion& confusion() const { return confusion_; }

  struct Mistake {
    std::int64_t sample = 0, label = 0, predicted = 0;
    double loss = 0;
    double probability = 0;  ///< of the predicted class
  };
  std::int64_t mistakes() const { return images_ - right_; }
  /// Those with the largest losses, in descending order; ties in the order of samples.
  const std::vector<Mistake>& worst() const { return worst_; }

 private:
  void count(std::int64_t label, std::int64_t predicted, std::int64_t images);
  void keep(const Mistake& mistake);

  std::vector<std::string> names_;
  std::int64_t top_, most_;
  std::int64_t images_ = 0, right_ = 0;
  double loss_ = std::numeric_limits<double>::quiet_NaN(), top_k_ = loss_;
  std::shared_ptr<MetricSums> sums_ = {};  // since the first add()
  std::vector<ClassFigures> figures_;
  Confusion confusion_;
  std::vector<Mistake> worst_;
};

/// The subject of an evaluation, for its readers.
struct Evaluated {
  std::string model = {}, data = {};
  /// The source of a sample, "photos/cat/7.jpg"; unset or empty: only its index is shown.
  std::function<std::string(std::int64_t sample)> where = {};
  std::string precision = {};  ///< in which it is measured, if that was asked for
  /// The float model that a quantized one is compared with, and its Results::score(); empty: there is none.
  std::string float_model = {};
  double float_score = 0;
};

/// Plain-text tables: precision and recall of up to 50 classes, and the confusion matrix of up to 20; with
/// more classes, the worst ones.
std::string text_of(const Evaluation& evaluation, const Evaluated& of = {});
/// The complete results as one JSON object:
///     {"model", "data", "images", "loss", "top1", "top5", "classes": [{"class", "index", "images",
///     "predicted",
///      "precision", "recall"}], "confusion": [{"actual", "predicted", "images"}], "mistakes": [...]}
/// where "confusion" has the nonzero cells, by index, and null represents undefined values.
std::string json_of(const Evaluation& evaluation, const Evaluated& of = {});
/// The confusion matrix as an SVG picture: a row per actual class, a column per predicted class. `inlined`:
/// for a page that defines the colours and has a caption.
std::string svg_of(const Evaluation& evaluation, bool inlined = false);

}  // namespace athanor
