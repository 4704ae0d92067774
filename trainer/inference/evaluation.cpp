#include "trainer/inference/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "kernels/metrics.h"
#include "tensor/error.h"

namespace athanor {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// The result of a row of logits.
struct Answer {
  std::int64_t predicted = Evaluation::kNone;
  std::int64_t likelier = 0;  // classes ranked before the label
  double probability = kNaN;  // of `predicted`
};

Answer answer_of(const double* row, std::int64_t classes, std::int64_t label) {
  Answer answer;
  if (std::any_of(row, row + classes, [](double logit) { return std::isnan(logit); })) {
    answer.likelier = classes;
    return answer;
  }
  answer.predicted = std::max_element(row, row + classes) - row;  // the first of equal ones
  for (std::int64_t c = 0; c < classes; ++c)
    answer.likelier += c < label ? row[c] >= row[label] : row[c] > row[label];
  double sum = 0;
  for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(row[c] - row[answer.predicted]);
  answer.probability = 1 / sum;
  return answer;
}

}  // namespace

Evaluation::Evaluation(std::int64_t classes, std::vector<std::string> names, std::int64_t top,
                       std::int64_t worst)
    : names_(std::move(names)), top_(top), most_(worst) {
  ATH_CHECK(classes > 0 && top > 0 && worst >= 0,
            "evaluation: classes and top must be at least 1, but are {} and {}", classes, top);
  ATH_CHECK(names_.empty() || std::ssize(names_) == classes,
            "evaluation: there must be a name for each of {} classes, but there are {}", classes,
            names_.size());
  figures_.resize(static_cast<std::size_t>(classes));
}

Evaluation::Evaluation(std::vector<std::string> names, const Confusion& confusion)
    : Evaluation(std::ssize(names), names, 1, 0) {
  for (const auto& [pair, images] : confusion) {
    const auto [is, said] = pair;
    ATH_CHECK(is >= 0 && is < classes() && said >= kNone && said < classes() && images >= 0,
              "evaluation: a cell must be of classes in [0, {}) and have images, but got {}, {} and {}",
              classes(), is, said, images);
    images_ += images;
    if (is == said) right_ += images;
    ClassFigures& figures = figures_[static_cast<std::size_t>(is)];
    figures.images += images;
    if (is == said) figures.right += images;
    if (said != kNone) figures_[static_cast<std::size_t>(said)].predicted += images;
  }
  confusion_ = confusion;
}

void Evaluation::add(const Tensor& losses, const Tensor& logits, const Tensor& labels,
                     const Tensor& samples) {
  const std::int64_t n = samples.shape().rank() == 1 ? samples.dim(0) : -1;
  ATH_CHECK(
      losses.shape() == Shape{n} && labels.shape() == Shape{n} && logits.shape() == (Shape{n, classes()}),
      "evaluation: must get losses [N], logits [N, {}] and labels [N], but got {}, {} and {}", classes(),
      losses.shape(), logits.shape(), labels.shape());
  const std::vector<double> loss = losses.to_vector(), all = logits.to_vector(), is = labels.to_vector(),
                            index = samples.to_vector();
  for (std::size_t i = 0; i < loss.size(); ++i) {
    if (index[i] < 0) continue;
    const auto label = static_cast<std::int64_t>(is[i]);
    ATH_CHECK(label >= 0 && label < classes(), "evaluation: a label must be in [0, {}), but is {}", classes(),
              label);
    const Answer answer = answer_of(all.data() + i * figures_.size(), classes(), label);
    const bool right = answer.predicted == label;
    ++images_;
    loss_ += kernels::quantized_loss(loss[i]);
    right_ += right;
    among_top_ += answer.likelier < top_ && answer.predicted != kNone;
    ClassFigures& of_label = figures_[static_cast<std::size_t>(label)];
    ++of_label.images;
    of_label.right += right;
    if (answer.predicted != kNone) ++figures_[static_cast<std::size_t>(answer.predicted)].predicted;
    ++confusion_[{label, answer.predicted}];
    if (!right)
      keep({static_cast<std::int64_t>(index[i]), label, answer.predicted, loss[i], answer.probability});
  }
}

void Evaluation::keep(const Mistake& mistake) {
  const auto before = [](const Mistake& a, const Mistake& b) {
    const auto size = [](const Mistake& one) {
      return std::isnan(one.loss) ? std::numeric_limits<double>::infinity() : one.loss;
    };
    return size(a) != size(b) ? size(a) > size(b) : a.sample < b.sample;
  };
  worst_.insert(std::upper_bound(worst_.begin(), worst_.end(), mistake, before), mistake);
  if (std::ssize(worst_) > most_) worst_.pop_back();
}

std::string Evaluation::name(std::int64_t index) const {
  if (index == kNone) return "none";
  return names_.empty() ? fmt::to_string(index) : names_.at(static_cast<std::size_t>(index));
}

double Evaluation::mean(double sum) const {
  return images_ > 0 ? sum / static_cast<double>(images_) : kNaN;
}

}  // namespace athanor
