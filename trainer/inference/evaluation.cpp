#include "trainer/inference/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tensor/base/error.h"

namespace athanor {

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
    count(is, said, images);
  }
}

void Evaluation::count(std::int64_t label, std::int64_t predicted, std::int64_t images) {
  const bool right = predicted == label;
  images_ += images;
  ClassFigures& of_label = figures_[static_cast<std::size_t>(label)];
  of_label.images += images;
  if (right) right_ += images, of_label.right += images;
  if (predicted != kNone) figures_[static_cast<std::size_t>(predicted)].predicted += images;
  confusion_[{label, predicted}] += images;
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

}  // namespace athanor
