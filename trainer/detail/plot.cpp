#include "trainer/detail/plot.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "tensor/base/printable.h"

namespace athanor::plot {
namespace {

/// The smallest of 1, 2, 5, 10, ... times a power of ten that is at least `step`.
double nice_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (step <= factor * power * 1.0001) return factor * power;
  }
  return 10 * power;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string all;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': all += "&amp;"; break;
      case '<': all += "&lt;"; break;
      case '>': all += "&gt;"; break;
      case '"': all += "&quot;"; break;
      default: all += c;
    }
  }
  return all;
}

double Axis::at(double value) const {
  if (log) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
  return (value - low) / (high - low);
}

Axis linear_axis(double low, double high, int most, bool whole) {
  if (!(high > low)) high = low + 1;
  Axis axis{low, high};
  double step = nice_step((high - low) / most);
  if (whole) step = std::max(step, 1.0);
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k) {
    axis.ticks.push_back(k == 0 ? 0 : k * step);  // not -0
    if (axis.ticks.size() > 20) break;            // beyond the resolution of doubles
  }
  return axis;
}

Axis log_axis(double low, double high, int most) {
  Axis axis{low, high, true};
  const double decades = std::log10(high / low);
  const int each = std::max(1, static_cast<int>(std::ceil(decades / most)));
  for (double power = std::floor(std::log10(low)); power <= std::log10(high) && axis.ticks.size() < 20;
       power += each) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, power);
      if ((factor == 1 || decades < 1.5) && tick >= low && tick <= high) axis.ticks.push_back(tick);
    }
  }
  return axis;
}

Svg::Svg(double width, double height, std::string_view attributes)
    : text_(fmt::format("<svg viewBox=\"0 0 {:g} {:g}\" {}>\n", width, height, attributes)) {}

Svg::Svg(double width, double height, std::string_view title, std::string_view note, std::string_view style)
    : text_(fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
                        "viewBox=\"0 0 {0:g} {1:g}\" role=\"img\" aria-label=\"{2}\">\n"
                        "<style>text {{ font: 12px sans-serif; fill: #222 }} .title {{ font-size: 15px }} "
                        ".muted {{ fill: #666 }} .grid {{ stroke: #eee }} {3}</style>\n",
                        width, height, escaped(title), style)) {
  rect({}, width, height, "fill=\"#fff\"");
  text({20, 24}, title, "class=\"title\"");
  text({20, 42}, note, "class=\"muted\"");
}

void Svg::end_shape(std::string_view element, std::string_view title) {
  if (title.empty())
    text_ += "/>\n";
  else
    text_ += fmt::format("><title>{}</title></{}>\n", escaped(title), element);
}

void Svg::rect(Point corner, double width, double height, std::string_view attributes,
               std::string_view title) {
  text_ += fmt::format("<rect x=\"{:.6g}\" y=\"{:.6g}\" width=\"{:.6g}\" height=\"{:.6g}\" {}", corner.x,
                       corner.y, width, height, attributes);
  end_shape("rect", title);
}

void Svg::circle(Point centre, double radius, std::string_view attributes, std::string_view title) {
  text_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" {}", centre.x, centre.y, radius,
                       attributes);
  end_shape("circle", title);
}

void Svg::text(Point at, std::string_view words, std::string_view attributes) {
  text_ +=
      fmt::format("<text x=\"{:.6g}\" y=\"{:.6g}\" {}>{}</text>\n", at.x, at.y, attributes, escaped(words));
}

void Svg::line(std::span<const Point> points, std::string_view attributes) {
  text_ += "<polyline points=\"";
  for (const Point& point : points)
    text_ += fmt::format("{}{:.1f},{:.1f}", &point == points.data() ? "" : " ", point.x, point.y);
  text_ += fmt::format("\" {}/>\n", attributes);
}

void Svg::line(Point from, Point to, std::string_view attributes) {
  line(std::array{from, to}, attributes);
}

void Svg::path(std::string_view d, std::string_view attributes) {
  text_ += fmt::format("<path d=\"{}\" {}/>\n", d, attributes);
}

}  // namespace athanor::plot
