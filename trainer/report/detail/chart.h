#pragma once

#include <string>
#include <vector>

#include "trainer/report/detail/html.h"
#include "trainer/report/detail/series.h"

namespace athanor::report {

/// Colours that style.css tells apart; the curve after the last of them is dashed, in the first.
inline constexpr int kColours = 8;

struct Curve {
  std::string label = {};
  std::vector<Point> points = {};  ///< in ascending x
  int colour = 0;
  std::string source =
      {};              ///< where the script finds the values: "0/steps/learning_rate", "0/epochs/val_loss"
  bool dots = false;   ///< a dot for each point
  bool faint = false;  ///< in the background, without a label
};

struct Chart {
  std::string title = {};
  std::vector<Curve> curves = {};
  Format format = Format::plain;
  const char* x_name = "step";
  bool from_zero = false;
  const char* hint = "";  ///< HTML, below the title
};

/// A figure: the curves over each other as inline SVG, which takes any width, with its labels as text beside
/// it; and in words what they show. Nothing where no curve has a point.
std::string html_of(const Chart& chart);

struct Bar {
  std::string label;
  double value = 0;
};
/// Seconds of the parts of a whole, in one bar, and a table of them with their shares.
std::string seconds_bar(const std::string& title, const std::vector<Bar>& bars, double whole);
/// One bar below the other, the longest as wide as there is room.
std::string bar_list(const std::string& title, const std::vector<Bar>& bars, Format format);

}  // namespace athanor::report
