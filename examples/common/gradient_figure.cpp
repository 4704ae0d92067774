#include "examples/common/gradient_figure.h"

#include <algorithm>
#include <cmath>

#include "examples/common/svg.h"
#include "tensor/error.h"

namespace athanor::examples {

void Octaves::add(std::span<const double> values, double scale) {
  for (const double value : values) {
    if (value == 0 || !std::isfinite(value)) continue;
    int exponent = 0;
    std::frexp(value * scale, &exponent);  // in [2^(exponent - 1), 2^exponent)
    ++count_[static_cast<std::size_t>(std::clamp(exponent - 1, kLowest, kHighest) - kLowest)];
    ++total_;
  }
}

std::int64_t Octaves::between(int first, int last) const {
  std::int64_t sum = 0;
  for (int octave = std::max(first, kLowest); octave < std::min(last, kHighest + 1); ++octave)
    sum += in(octave);
  return sum;
}

namespace {

constexpr int kLeft = -43, kRight = 25;  // of the picture, in powers of two

// What f16 does with a value, by its power of two. Below 2^-25 it rounds to zero; from there to 2^-14 it is a
// multiple of 2^-24, with fewer bits the smaller it is; from 65520, as good as 2^16, it rounds to infinity.
struct Zone {
  const char* style;
  const char* label;
  int first, last;
  int label_from = kLeft;  // where it begins to the eye: at a dashed line
};
constexpr Zone kZones[] = {{"lost", "become 0", kLeft, -25},
                           {"subnormal", "subnormal", -25, -14, -24},
                           {"normal", "all 11 bits", -14, 16},
                           {"lost", "overflow", 16, kRight}};

struct Mark {
  int octave;
  const char* label;
};
constexpr Mark kMarks[] = {{-24, "2⁻²⁴"}, {-14, "2⁻¹⁴"}, {16, "65504"}};
constexpr Mark kTicks[] = {{-40, "2⁻⁴⁰"}, {-30, "2⁻³⁰"}, {-20, "2⁻²⁰"}, {-10, "2⁻¹⁰"},
                           {0, "1"},      {10, "2¹⁰"},   {20, "2²⁰"}};

// Pixels.
constexpr double kWidth = 432, kHeight = 168, kHeadroom = 42;  // of a panel; its bars end below the headroom
constexpr double kMarginLeft = 58, kMarginTop = 122, kGapX = 34, kGapY = 80, kMarginRight = 24,
                 kMarginBottom = 62;

constexpr const char* kStyle = R"(
    text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 12px; fill: #1f2328 }
    .title { font-size: 18px; font-weight: 600 } .head { font-size: 14px; font-weight: 600 }
    .muted { fill: #59636e } .tick { fill: #59636e; font-size: 11px } .mark { font-size: 11px; font-weight: 600 }
    .paper { fill: #ffffff } .axis { stroke: #59636e } .grid { stroke: #d1d9e0 } .edge { stroke: #1f2328; stroke-dasharray: 3 3 }
    .normal { fill: #2f6fd6 } .subnormal { fill: #c98a00 } .lost { fill: #cf222e }
    .zone { opacity: 0.09 } .share { font-weight: 600 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .muted, .tick { fill: #9198a1 }
      .paper { fill: #0d1117 } .axis { stroke: #9198a1 } .grid { stroke: #2a313a } .edge { stroke: #e6edf3 }
      .normal { fill: #5c9dff } .subnormal { fill: #e3b341 } .lost { fill: #ff6a61 } .zone { opacity: 0.13 }
    }
)";

double x_of(double octave) {
  return kWidth * (octave - kLeft) / (kRight - kLeft);
}

std::string percent(std::int64_t part, std::int64_t whole) {
  if (part == 0) return "0 %";
  const double share = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return share < 0.05 ? "< 0.1 %" : fmt::format("{:.1f} %", share);
}

/// The zones' tints, and over each its name and the share of the values in it.
std::string zones(const Octaves& octaves) {
  std::string out;
  for (const Zone& zone : kZones) {
    const double left = x_of(zone.first), right = x_of(zone.last);
    out += rect(left, 0, right - left, kHeight, fmt::format("{} zone", zone.style));
    const std::int64_t inside = octaves.between(zone.first == kLeft ? Octaves::kLowest : zone.first,
                                                zone.last == kRight ? Octaves::kHighest + 1 : zone.last);
    const double middle = (std::max(left, x_of(zone.label_from)) + right) / 2;
    out += text(middle, 16, "tick", "middle", zone.label);
    out += text(middle, 32, "share", "middle", percent(inside, octaves.total()));
  }
  return out;
}

std::string bars(const Octaves& octaves, int top_percent) {
  std::string out;
  for (const Zone& zone : kZones) {
    for (int octave = zone.first; octave < zone.last; ++octave) {
      const double height = (kHeight - kHeadroom) * 100 * octaves.share(octave) / top_percent;
      if (height < 0.05) continue;
      out += rect(x_of(octave) + 0.4, kHeight - height, x_of(kLeft + 1) - 0.8, height, zone.style);
    }
  }
  return out;
}

std::string panel(const Panel& panel, int top_percent, bool labels_left) {
  std::string out = fmt::format(
      R"(<text y="-26"><tspan class="head">{}</tspan><tspan dx="10" class="muted">{}</tspan></text>)"
      "\n",
      escaped(panel.title), escaped(panel.note));
  if (panel.octaves.total() == 0) return out + text(kWidth / 2, kHeight / 2, "muted", "middle", "all are 0");
  out += zones(panel.octaves);
  for (int rung = 0; rung <= top_percent; rung += top_percent > 20 ? 10 : 5) {
    const double y = kHeight - (kHeight - kHeadroom) * rung / top_percent;
    out += line(0, y, kWidth, y, rung == 0 ? "axis" : "grid");
    if (labels_left) out += text(-8, y + 4, "tick", "end", fmt::format("{} %", rung));
  }
  out += bars(panel.octaves, top_percent);
  for (const Mark& mark : kMarks) {
    out += line(x_of(mark.octave), -2, x_of(mark.octave), kHeight, "edge");
    out += text(x_of(mark.octave), -7, "mark", "middle", mark.label);
  }
  for (const Mark& tick : kTicks) {
    out += line(x_of(tick.octave), kHeight, x_of(tick.octave), kHeight + 4, "axis");
    out += text(x_of(tick.octave), kHeight + 17, "tick", "middle", tick.label);
  }
  return out;
}

/// The largest share of any bar in percent, rounded up to a multiple of 10.
int highest_percent(const GradientFigure& figure) {
  double share = 0.01;
  for (const Panel& panel : figure.panels) {
    for (int octave = kLeft; octave < kRight; ++octave) share = std::max(share, panel.octaves.share(octave));
  }
  return 10 * static_cast<int>(std::ceil(share * 10));
}

}  // namespace

std::string svg(const GradientFigure& figure) {
  const int columns = figure.columns, rows = static_cast<int>(figure.panels.size()) / columns;
  const double width = kMarginLeft + columns * kWidth + (columns - 1) * kGapX + kMarginRight;
  const double height = kMarginTop + rows * kHeight + (rows - 1) * kGapY + kMarginBottom;
  std::string out = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}" role="img">)"
      "\n<title>{2}</title>\n<style>{3}</style>\n"
      R"(<rect width="{0:.0f}" height="{1:.0f}" rx="8" class="paper"/>)"
      "\n",
      width, height, escaped(figure.title), kStyle);
  out += text(kMarginLeft, 34, "title", "start", figure.title);
  out += text(kMarginLeft, 56, "muted", "start", figure.subtitle);
  const int top_percent = highest_percent(figure);
  for (int i = 0; i < rows * columns; ++i) {
    const int column = i % columns, row = i / columns;
    const double x = kMarginLeft + column * (kWidth + kGapX), y = kMarginTop + row * (kHeight + kGapY);
    out += fmt::format("<g transform=\"translate({:.0f} {:.0f})\">\n", x, y);
    out += panel(figure.panels[static_cast<std::size_t>(i)], top_percent, column == 0);
    out += "</g>\n";
  }
  out += text(kMarginLeft, height - 14, "muted", "start",
              "Across: size of a gradient; up: share of the gradients in that power of two. Dashed: f16's "
              "smallest subnormal, smallest normal and largest number.");
  return out + "</svg>\n";
}

}  // namespace athanor::examples
