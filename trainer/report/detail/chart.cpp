#include "trainer/report/detail/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "trainer/report/detail/record.h"

namespace athanor::report {
namespace {

// The drawing is stretched to the available width: only its height is in pixels, and lines keep their width.
// Text is outside, at fractions of the width.
constexpr double kWidth = 1000, kHeight = 180;
constexpr double kLabel = 15;  // height of a label in pixels

/// Maps values to [0, 1].
struct Axis {
  double low = 0, high = 1;
  bool log = false;
  std::vector<double> ticks = {};

  double at(double value) const {
    if (log) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
    return (value - low) / (high - low);
  }
};

/// The smallest of 1, 2, 5, 10, ... times a power of ten that is at least `step`.
double nice_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (step <= factor * power * 1.0001) return factor * power;
  }
  return 10 * power;
}

std::vector<double> linear_ticks(double low, double high, int most, bool whole) {
  std::vector<double> ticks;
  double step = nice_step((high - low) / most);
  if (whole) step = std::max(step, 1.0);
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k) {
    ticks.push_back(k == 0 ? 0 : k * step);  // not -0
    if (ticks.size() > 20) break;            // beyond the resolution of doubles
  }
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  const double decades = std::log10(high / low);
  const int each = std::max(1, static_cast<int>(std::ceil(decades / 5)));
  std::vector<double> ticks;
  for (double power = std::floor(std::log10(low)); power <= std::log10(high) && ticks.size() < 20;
       power += each) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, power);
      if ((factor == 1 || decades < 1.5) && tick >= low && tick <= high) ticks.push_back(tick);
    }
  }
  return ticks;
}

Axis value_axis(const Chart& chart) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool whole = chart.format == Format::count;
  for (const Curve& curve : chart.curves) {
    for (const Point& point : curve.points) {
      low = std::min(low, point.y), high = std::max(high, point.y);
      whole &= point.y == std::floor(point.y);
    }
  }
  Axis axis;
  axis.log = !chart.from_zero && chart.format != Format::share && low > 0 && high / low > 30;
  if (axis.log) {
    axis.low = low / 1.1, axis.high = high * 1.1;
    axis.ticks = log_ticks(axis.low, axis.high);
    return axis;
  }
  if (chart.from_zero) low = std::min(low, 0.0);
  const double room = high > low ? 0.05 * (high - low) : std::max(std::abs(high) * 0.05, 1e-12);
  axis.low = chart.from_zero && low == 0 ? 0 : low - room;
  axis.high = high + room;
  if (chart.format == Format::share) axis.high = std::max(std::min(axis.high, 1.0), high);
  if (!(axis.high > axis.low)) axis.high = axis.low + 1;
  axis.ticks = linear_ticks(axis.low, axis.high, 4, whole);
  return axis;
}

Axis step_axis(const Chart& chart) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const Curve& curve : chart.curves) {
    if (curve.points.empty()) continue;
    low = std::min(low, curve.points.front().x), high = std::max(high, curve.points.back().x);
  }
  if (!(high > low)) low -= 0.5, high += 0.5;
  return {.low = low, .high = high, .ticks = linear_ticks(low, high, 6, true)};
}

/// In the short form of a tick.
std::string tick_text(double value, Format format) {
  if (format == Format::share) return fmt::format("{:.4g} %", 100 * value);
  if (format == Format::seconds) return value == 0 ? "0" : figure(value, format);
  if (std::abs(value) >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (std::abs(value) >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", std::abs(value) < 1e-12 ? 0 : value);
}

std::string path_of(const Curve& curve, const Axis& x, const Axis& y) {
  std::string line, dots;
  const int colour = curve.colour % kColours;
  double before = -1;
  for (const Point& point : curve.points) {
    const double left = kWidth * x.at(point.x), top = kHeight * (1 - y.at(point.y));
    line += fmt::format("{}{:.1f} {:.1f}", before < 0 ? "M" : "L", left, top);
    dots += fmt::format("M{:.1f} {:.1f}h0", left, top);
    before = left;
  }
  const char* const dash = curve.colour >= kColours ? " dashed" : "";
  std::string path;
  if (curve.points.size() > 1)
    path =
        fmt::format("<path class=\"c{}{}{}\" d=\"{}\"/>\n", colour, dash, curve.faint ? " faint" : "", line);
  if (curve.points.size() == 1 || (curve.dots && curve.points.size() <= 60))
    path += fmt::format("<path class=\"c{} dots\" d=\"{}\"/>\n", colour, dots);
  return path;
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
    const auto said = [&](const Point& point) {
      return fmt::format("{} at {} {}", figure(point.y, chart.format), chart.x_name,
                         figure(point.x, Format::count));
    };
    text += fmt::format("{} from {} to {}; lowest {}, highest {}.",
                        chart.curves.size() > 1 ? fmt::format(" {}:", curve.label) : "",
                        said(curve.points.front()), said(curve.points.back()), said(*low), said(*high));
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
  std::string lines, texts;
  for (const double tick : y.ticks) {
    const double top = kHeight * (1 - y.at(tick));
    lines += fmt::format("<path class=\"grid\" d=\"M0 {0:.1f}H{1:g}\"/>\n", top, kWidth);
    texts += fmt::format("<span class=\"y\" style=\"top:{:.0f}px\">{}</span>\n", top,
                         tick_text(tick, chart.format));
  }
  for (const double tick : x.ticks)
    texts += fmt::format("<span class=\"x\" style=\"left:{:.2f}%\">{}</span>\n", 100 * x.at(tick),
                         tick_text(tick, Format::count));
  for (const Curve& curve : chart.curves) lines += path_of(curve, x, y);
  return fmt::format(
      "<svg viewBox=\"0 0 {:g} {:g}\" preserveAspectRatio=\"none\" aria-hidden=\"true\" "
      "focusable=\"false\">\n{}"
      "</svg>\n{}",
      kWidth, kHeight, lines, texts);
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
      "<figure class=\"chart\">\n<figcaption>{}{} <output></output></figcaption>\n"
      "<div class=\"plot{}\" role=\"img\" tabindex=\"0\" aria-label=\"{}\" data-low=\"{:.9g}\" "
      "data-high=\"{:.9g}\" "
      "data-x=\"{}\" data-format=\"{}\" data-curves=\"{}\">\n{}{}<span class=\"name\">{}</span>\n"
      "<i class=\"cursor\"></i></div>\n</figure>\n",
      escaped(chart.title), *chart.hint ? fmt::format(" <small>{}</small>", chart.hint) : "",
      labels.empty() ? "" : " labelled", escaped(describe(chart)), x.low, x.high, chart.x_name,
      name_of(chart.format), escaped(sources.dump(-1, ' ', false, Json::error_handler_t::replace)),
      drawing(chart, x, y), labels, chart.x_name);
}

std::string seconds_bar(const std::string& title, const std::vector<Bar>& bars, double whole) {
  std::string rects, rows, spoken;
  double left = 0;
  int colour = 0;
  for (const Bar& bar : bars) {
    const double share = bar.value / std::max(whole, 1e-300);
    if (share < 5e-4) continue;  // 0.0 %
    const int fill = bar.label == "other" ? kColours - 1 : colour % (kColours - 1);
    rects += fmt::format(
        "<rect class=\"f{}\" x=\"{:.2f}\" y=\"0\" width=\"{:.2f}\" height=\"24\"><title>{}: "
        "{}</title></rect>\n",
        fill, kWidth * left, kWidth * share, escaped(bar.label), share_text(share));
    rows += fmt::format("<tr><th scope=\"row\"><i class=\"key f{}\"></i>{}</th><td>{}</td><td>{}</td></tr>\n",
                        fill, escaped(bar.label), seconds_text(bar.value), share_text(share));
    spoken += fmt::format(" {} {};", bar.label, share_text(share));
    left += share;
    ++colour;
  }
  return fmt::format(
      "<figure class=\"parts\">\n<figcaption>{0}</figcaption>\n<svg role=\"img\" aria-label=\"{0}:{1}\" "
      "viewBox=\"0 0 {2:g} 24\" preserveAspectRatio=\"none\">\n{3}</svg>\n<table>\n{4}</table>\n</figure>\n",
      escaped(title), escaped(spoken), kWidth, rects, rows);
}

std::string bar_list(const std::string& title, const std::vector<Bar>& bars, Format format) {
  double most = 1e-300;
  for (const Bar& bar : bars) most = std::max(most, bar.value);
  std::string rows;
  for (const Bar& bar : bars)
    rows += fmt::format(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"bar\"><svg viewBox=\"0 0 {:g} 12\" "
        "preserveAspectRatio=\"none\" aria-hidden=\"true\" focusable=\"false\"><rect class=\"f0\" "
        "width=\"{:.1f}\" "
        "height=\"12\"/></svg></td></tr>\n",
        escaped(bar.label), figure(bar.value, format), kWidth, kWidth * bar.value / most);
  return fmt::format("<figure class=\"bars\">\n<figcaption>{}</figcaption>\n<table>\n{}</table>\n</figure>\n",
                     escaped(title), rows);
}

}  // namespace athanor::report
