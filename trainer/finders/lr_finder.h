#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace athanor {

struct TrainerConfig;

/// The learning rates of a range test: one per step, in a geometric sequence.
struct LrRange {
  double from = 1e-7, to = 10;
  int steps = 100;

  double rate(int step) const;
};
/// Throws ArgumentError.
void check(const LrRange& range);

/// The measurements of a range test.
struct LrCurve {
  struct Point {
    double rate = 0, loss = 0;  ///< the loss before the step with that rate
  };

  std::vector<Point> points;
  std::optional<double> diverged_at = {};  ///< the rate at which the test ended

  /// Adds a step; false if the test is over, because the loss is not finite or its running mean has exceeded
  /// the limit.
  bool add(double rate, double loss);
  /// Upper limit of the loss: that of the first ten steps, plus a tenth of it and three deviations.
  double limit() const;

 private:
  double mean_ = 0, weight_ = 0;  // of the latest losses
};

/// The conclusion from a curve.
struct LrAnswer {
  std::optional<double> rate;  ///< the rate to use, to two digits; empty: inconclusive
  std::string why;             ///< a sentence
  std::vector<double> smooth;  ///< the losses, smoothed and clipped to the limit
  double lowest = 0;           ///< the rate of the lowest smoothed loss
};

/// Finds the steepest fall of the smoothed loss per factor of the rate. A loss that falls by less than its
/// noise and a fiftieth is inconclusive. The smoothing is a Gaussian of 2.5 steps on both sides: a running
/// mean of earlier steps would lag, and so give too large a rate. Source: Smith 2017, arXiv:1506.01186,
/// section 3.3 (the test); the steepest point as in PyTorch Lightning.
LrAnswer answer_of(const LrCurve& curve);

/// The curve in characters: dots for losses, a line for smoothed ones, a column at the answer.
std::string chart_of(const LrCurve& curve, const LrAnswer& answer, int columns);
std::string svg_of(const LrCurve& curve, const LrAnswer& answer);
/// The complete text for a terminal: rate and reason, chart, SVG file, and the command to train with.
std::string text_of(const LrCurve& curve, const LrAnswer& answer, const TrainerConfig& config, int columns);
/// The program's command without the question, with its value of `flag` replaced by `value`. "--lr 0.1" if
/// the command is unknown.
std::string command_with(const TrainerConfig& config, const std::string& flag, const std::string& value);

}  // namespace athanor
