#include "trainer/metrics/several_labels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace athanor {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool is_there(double target) {
  return target >= 0.5;
}

bool any_nan(std::span<const double> scores) {
  return std::ranges::any_of(scores, [](double score) { return std::isnan(score); });
}

/// Calls f(right, predicted, score, next) for each distinct score from the highest on: how many images have
/// it or a higher one, how many of those have the class, and the score that follows, at last -infinity.
/// Returns the number of images of the class.
template <class F>
std::int64_t for_each_score(std::span<const double> scores, std::span<const double> targets, const F& f) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  std::int64_t right = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    right += is_there(targets[order[i]]);
    const bool last = i + 1 == order.size();
    const double score = scores[order[i]],
                 next = last ? -std::numeric_limits<double>::infinity() : scores[order[i + 1]];
    if (last || next != score) f(right, static_cast<std::int64_t>(i + 1), score, next);
  }
  return right;
}

std::int64_t images_of(std::span<const double> targets) {
  return std::ranges::count_if(targets, is_there);
}

}  // namespace

double probability_of(double logit) {
  return 1 / (1 + std::exp(-logit));
}

double average_precision(std::span<const double> scores, std::span<const double> targets) {
  const std::int64_t images = images_of(targets);
  if (images == 0 || any_nan(scores)) return kNaN;
  double sum = 0;
  std::int64_t found = 0;
  for_each_score(scores, targets, [&](std::int64_t right, std::int64_t predicted, double, double) {
    sum += static_cast<double>(right - found) * static_cast<double>(right) / static_cast<double>(predicted);
    found = right;
  });
  return sum / static_cast<double>(images);
}

double best_threshold(std::span<const double> scores, std::span<const double> targets) {
  const std::int64_t images = images_of(targets);
  if (images == 0 || any_nan(scores)) return 0.5;
  double best = 0, threshold = 0.5;
  for_each_score(scores, targets, [&](std::int64_t right, std::int64_t predicted, double score, double next) {
    const double f1 = ClassFigures{images, predicted, right}.f1();
    if (f1 <= best) return;
    best = f1;
    threshold = (probability_of(score) + probability_of(next)) / 2;
  });
  return threshold;
}

ClassFigures figures_at(double threshold, std::span<const double> scores, std::span<const double> targets) {
  ClassFigures figures{.images = images_of(targets)};
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (!(probability_of(scores[i]) >= threshold)) continue;
    ++figures.predicted;
    figures.right += is_there(targets[i]);
  }
  return figures;
}

double micro_f1(std::span<const ClassFigures> classes) {
  ClassFigures all;
  for (const ClassFigures& one : classes) {
    all.images += one.images;
    all.predicted += one.predicted;
    all.right += one.right;
  }
  return all.images + all.predicted == 0 ? 0 : all.f1();
}

double macro_f1(std::span<const ClassFigures> classes) {
  double sum = 0;
  std::int64_t present = 0;
  for (const ClassFigures& one : classes) {
    if (one.images + one.predicted == 0) continue;
    sum += one.f1();
    ++present;
  }
  return present == 0 ? 0 : sum / static_cast<double>(present);
}

void SeveralLabels::figures(const PredictedColumns& measured, const Emit& emit) const {
  const std::size_t classes = measured.targets.size();
  std::vector<double> thresholds;
  std::vector<ClassFigures> at_half, tuned;
  double precisions = 0;
  std::int64_t ranked = 0;
  bool numbers = true;
  for (std::size_t c = 0; c < classes; ++c) {
    const std::vector<double>&scores = measured.predictions[c], &targets = measured.targets[c];
    numbers = numbers && !any_nan(scores);
    if (images_of(targets) > 0) {
      precisions += average_precision(scores, targets);
      ++ranked;
    }
    thresholds.push_back(best_threshold(scores, targets));
    at_half.push_back(figures_at(0.5, scores, targets));
    tuned.push_back(figures_at(thresholds.back(), scores, targets));
  }
  const auto say = [&](const char* name, double value) { emit(name, numbers ? value : kNaN); };
  say("mAP", ranked == 0 ? 0 : precisions / static_cast<double>(ranked));
  say("f1_micro", micro_f1(at_half));
  say("f1_macro", macro_f1(at_half));
  say("tuned_f1_micro", micro_f1(tuned));
  say("tuned_f1_macro", macro_f1(tuned));
  for (std::size_t c = 0; c < classes; ++c) emit(fmt::format("threshold/{}", c), thresholds[c]);
}

}  // namespace athanor
