#include "trainer/report/detail/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "trainer/detail/plot.h"
#include "trainer/report/detail/record.h"

namespace athanor::report {
namespace {

using plot::Axis;

// The drawing is stretched to the available width: only its height is in pixels, and lines keep their width.
// Text is outside, at fractions of the width.
constexpr double kWidth = 1000, kHeight = 180;
constexpr double kLabel = 15;  // height of a label in pixels
constexpr const char* kStretched = "preserveAspectRatio=\"none\" aria-hidden=\"true\" focusable=\"false\"";

Axis value_axis(const Chart& chart) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool whole = chart.format == Format::count;
  for (const Curve& curve : chart.curves) {
    for (const Point& point : curve.points) {
      low = std::min(low, point.y), high = std::max(high, point.y);
      whole &= point.y == std::floor(point.y);
    }
  }
  if (!chart.from_zero && chart.format != Format::share && low > 0 && high / low > 30)
    return plot::log_axis(low / 1.1, high * 1.1);
  if (chart.from_zero) low = std::min(low, 0.0);
  const double room = high > low ? 0.05 * (high - low) : std::max(std::abs(high) * 0.05, 1e-12);
  double top = high + room;
  if (chart.format == Format::share) top = std::max(std::min(top, 1.0), high);
  return plot::linear_axis(chart.from_zero && low == 0 ? 0 : low - room, top, 4, whole);
}

Axis step_axis(const Chart& chart) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const Curve& curve : chart.curves) {
    if (curve.points.empty()) continue;
    low = std::min(low, curve.points.front().x), high = std::max(high, curve.points.back().x);
  }
  if (!(high > low)) low -= 0.5, high += 0.5;
  return plot::linear_axis(low, high, 6, true);
}

/// In the short form of a tick.
std::string tick_text(double value, Format format) {
  if (format == Format::share) return fmt::format("{:.4g} %", 100 * value);
  if (format == Format::seconds) return value == 0 ? "0" : figure(value, format);
  if (std::abs(value) >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (std::abs(value) >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", std::abs(value) < 1e-12 ? 0 : value);
}

void draw(plot::Svg& svg, const Curve& curve, const Axis& x, const Axis& y) {
  std::vector<Point> places;
  std::string dots;  // of a path: unlike circles, its strokes are not stretched
  for (const Point& point : curve.points) {
    places.push_back({kWidth * x.at(point.x), kHeight * (1 - y.at(point.y))});
    dots += fmt::format("M{:.1f} {:.1f}h0", places.back().x, places.back().y);
  }
  const std::string colour = fmt::format("class=\"c{}", curve.colour % kColours);
  if (places.size() > 1)
    svg.line(places, fmt::format("{}{}{}\"", colour, curve.colour >= kColours ? " dashed" : "",
                                 curve.faint ? " faint" : ""));
  if (places.size() == 1 || (curve.dots && places.size() <= 60)) svg.path(dots, colour + " dots\"");
}

/// Names at the right ends of curves, spread out if ends are close together.
std::string end_labels(const Chart& chart, const Axis& y) {
  struct Label {
    const Curve* curve;
    double top;
  };
  std::vector<Label> labels;
  if (chart.curves.size() < 2) return "";  // the title suffices
  for (const Curve& curve : chart.curves) {
    if (!curve.faint && !curve.points.empty())
      labels.push_back({&curve, kHeight * (1 - y.at(curve.points.back().y))});
  }
  std::sort(labels.begin(), labels.end(), [](const Label& a, const Label& b) { return a.top < b.top; });
  for (std::size_t i = 1; i < labels.size(); ++i)
    labels[i].top = std::max(labels[i].top, labels[i - 1].top + kLabel);
  double most = kHeight + 4;
  for (std::size_t i = labels.size(); i-- > 0; most -= kLabel) labels[i].top = std::min(labels[i].top, most);
  std::string text;
  for (const Label& label : labels)
    text += fmt::format("<span class=\"end t{}\" style=\"top:{:.0f}px\">{}</span>\n",
                        label.curve->colour % kColours, label.top, escaped(label.curve->label));
  return text;
}

std::string describe(const Chart& chart) {
  std::string text = chart.title + ".";
  for (const Curve& curve : chart.curves) {
    if (curve.faint || curve.points.empty()) continue;
    const auto [low, high] = std::minmax_element(curve.points.begin(), curve.points.end(),
                                                 [](const Point& a, const Point& b) { return a.y < b.y; });
    const auto shown = [&](const Point& point) {
      return fmt::format("{} at {} {}", figure(point.y, chart.format), chart.x_name,
                         figure(point.x, Format::count));
    };
    text += fmt::format("{} from {} to {}; lowest {}, highest {}.",
                        chart.curves.size() > 1 ? fmt::format(" {}:", curve.label) : "",
                        shown(curve.points.front()), shown(curve.points.back()), shown(*low), shown(*high));
  }
  return text;
}

const char* name_of(Format format) {
  switch (format) {
    case Format::share: return "share";
    case Format::count: return "count";
    case Format::seconds: return "seconds";
    case Format::bytes: return "bytes";
    case Format::plain: break;
  }
  return "plain";
}

std::string drawing(const Chart& chart, const Axis& x, const Axis& y) {
  plot::Svg svg(kWidth, kHeight, kStretched);
  std::string texts;
  for (const double tick : y.ticks) {
    const double top = kHeight * (1 - y.at(tick));
    svg.line({0, top}, {kWidth, top}, "class=\"grid\"");
    texts += fmt::format("<span class=\"y\" style=\"top:{:.0f}px\">{}</span>\n", top,
                         tick_text(tick, chart.format));
  }
  for (const double tick : x.ticks)
    texts += fmt::format("<span class=\"x\" style=\"left:{:.2f}%\">{}</span>\n", 100 * x.at(tick),
                         tick_text(tick, Format::count));
  for (const Curve& curve : chart.curves) draw(svg, curve, x, y);
  return svg.done() + texts;
}

std::string seconds_text(double seconds) {
  return seconds < 9.995 ? fmt::format("{:.2f} s", seconds) : figure(seconds, Format::seconds);
}

std::string share_text(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

}  // namespace

std::string html_of(const Chart& chart) {
  if (std::all_of(chart.curves.begin(), chart.curves.end(),
                  [](const Curve& one) { return one.points.size() < 2; }))
    return "";
  const Axis x = step_axis(chart), y = value_axis(chart);
  Json sources = Json::array();
  for (const Curve& curve : chart.curves) {
    if (!curve.source.empty()) sources.push_back({curve.label, curve.source});
  }
  const std::string labels = end_labels(chart, y);
  return fmt::format(
      "<figure class=\"chart\">\n<figcaption>{} <output></output></figcaption>\n"
      "<div class=\"plot{}\" role=\"img\" tabindex=\"0\" aria-label=\"{}\" data-low=\"{:.9g}\" "
      "data-high=\"{:.9g}\" data-x=\"{}\" data-format=\"{}\" data-curves=\"{}\">\n{}{}<span "
      "class=\"name\">{}</span>\n"
      "<i class=\"cursor\"></i></div>\n</figure>\n",
      escaped(chart.title), labels.empty() ? "" : " labelled", escaped(describe(chart)), x.low, x.high,
      chart.x_name, name_of(chart.format),
      escaped(sources.dump(-1, ' ', false, Json::error_handler_t::replace)), drawing(chart, x, y), labels,
      chart.x_name);
}

std::string seconds_bar(const std::string& title, const std::vector<Bar>& bars, double whole) {
  plot::Svg svg(kWidth, 24, kStretched);
  std::string rows;
  double left = 0;
  int colours = 0;
  for (const Bar& bar : bars) {
    const double share = bar.value / std::max(whole, 1e-300);
    if (share < 5e-4) continue;  // 0.0 %
    const int colour = bar.label == "other" ? kColours - 1 : colours++ % (kColours - 1);
    svg.rect({kWidth * left, 0}, kWidth * share, 24, fmt::format("class=\"f{}\"", colour),
             fmt::format("{}: {}", bar.label, share_text(share)));
    rows += row(fmt::format("<i class=\"key f{}\"></i>{}", colour, escaped(bar.label)),
                {seconds_text(bar.value), share_text(share)});
    left += share;
  }
  return fmt::format("<figure class=\"parts\">\n<figcaption>{}</figcaption>\n{}{}</figure>\n", escaped(title),
                     svg.done(), table("shares", rows));
}

std::string bar_list(const std::string& title, const std::vector<Bar>& bars, Format format) {
  double most = 1e-300;
  for (const Bar& bar : bars) most = std::max(most, bar.value);
  std::string rows;
  for (const Bar& bar : bars) {
    plot::Svg svg(kWidth, 12, kStretched);
    svg.rect({}, kWidth * bar.value / most, 12, "class=\"f0\"");
    rows += row(escaped(bar.label), {figure(bar.value, format), svg.done()});
  }
  return fmt::format("<figure class=\"bars\">\n<figcaption>{}</figcaption>\n{}</figure>\n", escaped(title),
                     table("shares", rows));
}

}  // namespace athanor::report
