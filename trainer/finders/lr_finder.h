#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace athanor {

struct TrainerConfig;

/// The learning rates of a range test: one a step, each the same factor above the one before.
struct LrRange {
  double from = 1e-7, to = 10;
  int steps = 100;

  double rate(int step) const;
};
/// Throws ArgumentError.
void check(const LrRange& range);

/// What a range test has seen.
struct LrCurve {
  struct Point {
    double rate = 0, loss = 0;  ///< the loss before the step of that rate
  };

  std::vector<Point> points;
  std::optional<double> diverged_at = {};  ///< the rate at which it was over

  /// Takes a step in; false where the test is over, because the loss is not finite, or its running mean has
  /// left the ones it began with behind, upwards.
  bool add(double rate, double loss);
  /// What the loss must stay below: that of the first ten steps, a tenth of it and three deviations.
  double limit() const;

 private:
  double mean_ = 0, weight_ = 0;  // of the last losses
};

/// What a curve says.
struct LrAnswer {
  std::optional<double> rate;  ///< to train with, to two digits; none: the curve does not say
  std::string why;             ///< a sentence
  std::vector<double> smooth;  ///< the losses, each with its neighbours, and none above the limit
  double lowest = 0;           ///< the rate where the smooth losses are lowest
};

/// Where the smoothed loss falls the steepest per factor of the rate. A loss that falls by less than its
/// noise and a fiftieth says nothing. Smoothed by a Gaussian of 2.5 steps on both sides: a running mean of
/// the steps before would answer with a rate that is too large, by as many steps as it lags. Source: Smith
/// 2017, arXiv:1506.01186, section 3.3 (the test); the steepest point as in PyTorch Lightning.
LrAnswer answer_of(const LrCurve& curve);

/// The curve, of characters: dots for the losses, a line for the smooth ones, a column at the answer.
std::string chart_of(const LrCurve& curve, const LrAnswer& answer, int columns);
std::string svg_of(const LrCurve& curve, const LrAnswer& answer);
/// All of it for a terminal: the rate and why, the chart, where it is drawn, and the command to train with.
std::string text_of(const LrCurve& curve, const LrAnswer& answer, const TrainerConfig& config, int columns);
/// The program's command without what was asked, with `flag value` in place of what it says of that flag.
/// "--lr 0.1" where the command is not known.
std::string command_with(const TrainerConfig& config, const std::string& flag, const std::string& value);

}  // namespace athanor
