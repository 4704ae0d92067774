// Evaluation of a learning-rate range test.

#include "trainer/finders/lr_finder.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tensor/base/error.h"

namespace athanor {
namespace {

constexpr std::size_t kFirst = 10;  // losses at the beginning, as a reference
constexpr double kForget = 0.8;     // of the running mean that ends a test
constexpr double kSigma = 2.5;      // steps, of the smoothing
constexpr double kSmoothNoise =
    0.34;                          // deviation of a smooth loss to that of a loss: 1 / sqrt(2 sqrt(pi) sigma)
constexpr double kMinFall = 0.02;  // of the first loss

struct Level {
  double mean = 0, deviation = 0;
};

/// Of the losses before training has an effect.
Level level_of(const std::vector<LrCurve::Point>& points) {
  Level level;
  const auto count = std::min(points.size(), kFirst);
  for (std::size_t i = 0; i < count; ++i) level.mean += points[i].loss / static_cast<double>(count);
  for (std::size_t i = 0; i < count; ++i)
    level.deviation += std::pow(points[i].loss - level.mean, 2) / static_cast<double>(count);
  level.deviation = std::sqrt(level.deviation);
  return level;
}

std::vector<double> smoothed(const LrCurve& curve) {
  const double limit = curve.limit();
  const auto count = std::ssize(curve.points);
  const auto reach = static_cast<std::ptrdiff_t>(std::ceil(3 * kSigma));
  std::vector<double> all;
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    double sum = 0, weights = 0;
    for (std::ptrdiff_t j = std::max<std::ptrdiff_t>(i - reach, 0); j <= std::min(i + reach, count - 1);
         ++j) {
      const double away = static_cast<double>(j - i) / kSigma, weight = std::exp(-away * away / 2);
      sum += weight * std::min(curve.points[static_cast<std::size_t>(j)].loss, limit);
      weights += weight;
    }
    all.push_back(sum / weights);
  }
  return all;
}

/// Rounds to two digits.
double rounded(double rate) {
  const double unit = std::pow(10, std::floor(std::log10(rate)) - 1);
  return std::stod(fmt::format("{:.1e}", std::round(rate / unit) * unit));
}

}  // namespace

double LrRange::rate(int step) const {
  return from * std::pow(to / from, static_cast<double>(step) / std::max(steps - 1, 1));
}

void check(const LrRange& range) {
  ATH_CHECK(std::isfinite(range.to) && range.from > 0 && range.from < range.to && range.to <= 1e6,
            "find_lr: rates must rise, from above 0 to at most 1e6, but go from {} to {}", range.from,
            range.to);
  ATH_CHECK(range.steps >= 20 && range.steps <= 100'000, "find_lr: must take 20 to 100,000 steps, but got {}",
            range.steps);
}

double LrCurve::limit() const {
  const Level first = level_of(points);
  return first.mean + 0.1 * std::abs(first.mean) + 3 * first.deviation;
}

bool LrCurve::add(double rate, double loss) {
  if (std::isfinite(loss)) {
    points.push_back({rate, loss});
    mean_ = kForget * mean_ + (1 - kForget) * loss;
    weight_ = kForget * weight_ + (1 - kForget);
    if (points.size() <= kFirst || mean_ / weight_ <= limit()) return true;
  }
  diverged_at = rate;
  return false;
}

LrAnswer answer_of(const LrCurve& curve) {
  LrAnswer answer{.rate = {}, .why = {}, .smooth = smoothed(curve)};
  const std::vector<double>& smooth = answer.smooth;
  if (smooth.size() <= kFirst) {
    answer.why = curve.diverged_at
                     ? fmt::format("the loss is not finite or rises from the rate {:.2g} on, after {} steps",
                                   *curve.diverged_at, smooth.size())
                     : fmt::format("{} losses were measured, which is too few", smooth.size());
    return answer;
  }
  const auto rate_at = [&](std::size_t i) { return curve.points[i].rate; };
  const auto lowest =
      static_cast<std::size_t>(std::min_element(smooth.begin(), smooth.end()) - smooth.begin());
  answer.lowest = rate_at(lowest);
  const Level first = level_of(curve.points);
  const double fall = first.mean - smooth[lowest];
  if (fall < std::max(kMinFall * std::abs(first.mean), 5 * kSmoothNoise * first.deviation)) {
    answer.why =
        fmt::format("the loss starts at {:.4g} and never falls clearly, at rates from {:.2g} to {:.2g}",
                    first.mean, rate_at(0), rate_at(smooth.size() - 1));
    return answer;
  }
  std::size_t steepest = 1;
  const auto slope = [&](std::size_t i) { return smooth[i + 1] - smooth[i - 1]; };
  for (std::size_t i = 1; i < lowest && i + 1 < smooth.size(); ++i) {
    if (slope(i) < slope(steepest)) steepest = i;
  }
  answer.rate = rounded(rate_at(steepest));
  answer.why = fmt::format("the loss falls fastest there, on its way from {:.4g} to {:.4g} at {:.2g}",
                           first.mean, smooth[lowest], answer.lowest);
  answer.why += curve.diverged_at            ? fmt::format("; from {:.2g} on it diverges", *curve.diverged_at)
                : lowest + 2 < smooth.size() ? "; it did not diverge"
                                             : "; at the last rate it still falls";
  return answer;
}

}  // namespace athanor
