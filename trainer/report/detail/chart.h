#pragma once

#include <string>
#include <vector>

#include "trainer/report/detail/html.h"
#include "trainer/report/detail/series.h"

namespace athanor::report {

/// Number of colours in style.css; later curves are dashed, beginning with the first colour again.
inline constexpr int kColours = 8;

struct Curve {
  std::string label = {};
  std::vector<Point> points = {};  ///< in ascending x
  int colour = 0;
  std::string source = {};  ///< where the script finds values: "0/steps/learning_rate", "0/epochs/val_loss"
  bool dots = false;        ///< a dot for each point
  bool faint = false;       ///< in the background, without a label
};

struct Chart {
  std::string title = {};
  std::vector<Curve> curves = {};
  Format format = Format::plain;
  const char* x_name = "step";
  bool from_zero = false;
};

/// A figure: overlaid curves as inline SVG of any width, with its labels as text next to it, and a
/// description in words. Empty if no curve has two points.
std::string html_of(const Chart& chart);

struct Bar {
  std::string label;
  double value = 0;
};
/// A bar with the seconds of the parts of a whole, and a table with their shares.
std::string seconds_bar(const std::string& title, const std::vector<Bar>& bars, double whole);
/// Horizontal bars, the longest at full width.
std::string bar_list(const std::string& title, const std::vector<Bar>& bars, Format format);

}  // namespace athanor::report
