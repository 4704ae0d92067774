#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace athanor::examples {

/// How many values lie in each power of two: bin k counts those with 2^k <= |value| < 2^(k + 1).
class Octaves {
 public:
  static constexpr int kLowest = -160, kHighest = 160;  ///< wider than f32; what is beyond counts as here

  /// Counts the values that are neither zero nor infinite nor NaN, each times `scale`.
  void add(std::span<const double> values, double scale);

  std::int64_t total() const { return total_; }
  std::int64_t in(int octave) const { return count_[static_cast<std::size_t>(octave - kLowest)]; }
  /// Of all values, in [0, 1]; 0 where there are none.
  double share(int octave) const {
    return total_ == 0 ? 0 : static_cast<double>(in(octave)) / static_cast<double>(total_);
  }
  /// How many lie in [2^first, 2^last).
  std::int64_t between(int first, int last) const;

 private:
  std::array<std::int64_t, kHighest - kLowest + 1> count_{};
  std::int64_t total_ = 0;
};

/// One histogram of the figure.
struct Panel {
  std::string title, note;
  Octaves octaves;
};

/// What is drawn: `columns` panels beside each other, as many rows as there are panels for.
struct GradientFigure {
  std::string title, subtitle;
  int columns = 1;
  std::vector<Panel> panels;  ///< row by row
};

/// An SVG picture of histograms of log2 |gradient| with the range of f16 drawn in: what becomes zero, what
/// becomes subnormal, what is exact to 11 bits, what overflows, each with its share. Its colours follow the
/// viewer's preference for light or dark.
std::string svg(const GradientFigure& figure);

}  // namespace athanor::examples
