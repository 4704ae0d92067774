// Presentation of a learning-rate range test: on a terminal, as SVG, and the resulting command.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tensor/printable.h"
#include "trainer/config.h"
#include "trainer/detail/terminal.h"
#include "trainer/finders/lr_finder.h"

namespace athanor {
namespace {

/// Maps a value to its position on an axis, in [0, 1].
struct Axis {
  double low = 0, high = 1;
  double at(double value) const { return std::clamp((value - low) / std::max(high - low, 1e-12), 0.0, 1.0); }
};

Axis rates(const LrCurve& curve) {
  return {std::log10(curve.points.front().rate), std::log10(curve.points.back().rate)};
}

/// From the lowest loss to the highest below the limit.
Axis losses(const LrCurve& curve, const LrAnswer& answer) {
  Axis axis{answer.smooth[0], answer.smooth[0]};
  for (const double loss : answer.smooth) axis = {std::min(axis.low, loss), std::max(axis.high, loss)};
  for (const LrCurve::Point& point : curve.points) {
    axis.low = std::min(axis.low, point.loss);
    axis.high = std::max(axis.high, std::min(point.loss, curve.limit()));
  }
  return axis;
}

std::vector<int> decades(const Axis& axis) {
  std::vector<int> all;
  for (int power = static_cast<int>(std::ceil(axis.low - 1e-6)); power <= axis.high + 1e-6; ++power)
    all.push_back(power);
  return all;
}

}  // namespace

std::string chart_of(const LrCurve& curve, const LrAnswer& answer, int columns) {
  if (curve.points.size() < 2) return {};
  constexpr int kRows = 12, kMargin = 10;  // columns of the losses' axis
  const int width = std::clamp(columns - kMargin - 1, 20, 100);
  const Axis x = rates(curve), y = losses(curve, answer);
  std::vector<std::vector<std::string>> cells(kRows,
                                              std::vector<std::string>(static_cast<std::size_t>(width), " "));
  const auto column = [&](double rate) {
    return static_cast<std::size_t>(std::lround(x.at(std::log10(rate)) * (width - 1)));
  };
  const auto row = [&](double loss) {
    return static_cast<std::size_t>(std::lround((1 - y.at(loss)) * (kRows - 1)));
  };
  if (answer.rate) {
    for (auto& line : cells) line[column(*answer.rate)] = "│";
  }
  for (const LrCurve::Point& point : curve.points) cells[row(point.loss)][column(point.rate)] = "·";
  for (std::size_t i = 0; i < answer.smooth.size(); ++i)
    cells[row(answer.smooth[i])][column(curve.points[i].rate)] = "•";
  std::string text;
  for (std::size_t r = 0; r < cells.size(); ++r) {
    const bool labelled = r == 0 || r + 1 == cells.size();
    std::string line =
        fmt::format("{:>{}} ┤", labelled ? fmt::format("{:.4g}", r == 0 ? y.high : y.low) : "", kMargin - 2);
    for (const std::string& cell : cells[r]) line += cell;
    text += line.erase(line.find_last_not_of(' ') + 1) + "\n";
  }
  std::string ticks;
  for (const int power : decades(x)) {
    const std::size_t at = kMargin + column(std::pow(10, power));
    const std::string name = fmt::format("{:g}", std::pow(10, power));
    const std::size_t begin = at - std::min(at, name.size() / 2);
    if (begin < ticks.size() + !ticks.empty() ||
        begin + name.size() > kMargin + static_cast<std::size_t>(width))
      continue;
    ticks.resize(begin, ' ');
    ticks += name;
  }
  return text + ticks + "\n";
}

std::string svg_of(const LrCurve& curve, const LrAnswer& answer) {
  constexpr double kWidth = 720, kHeight = 420, kLeft = 64, kRight = 20, kTop = 56, kBottom = 48;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" viewBox=\"0 0 {0:g} "
      "{1:g}\" "
      "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "<text x=\"20\" y=\"24\" font-size=\"15\">{2}</text>\n<text x=\"20\" y=\"42\" "
      "fill=\"#666\">{3}</text>\n",
      kWidth, kHeight, answer.rate ? fmt::format("learning rate {:g}", *answer.rate) : "no suggestion",
      answer.why);
  if (curve.points.size() < 2) return text + "</svg>\n";
  const Axis x = rates(curve), y = losses(curve, answer);
  const auto across = [&](double rate) { return kLeft + x.at(std::log10(rate)) * (kWidth - kLeft - kRight); };
  const auto down = [&](double loss) { return kTop + (1 - y.at(loss)) * (kHeight - kTop - kBottom); };
  for (const int power : decades(x)) {
    const double at = across(std::pow(10, power));
    text += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:g}\" x2=\"{0:.1f}\" y2=\"{2:g}\" stroke=\"#eee\"/>"
        "<text x=\"{0:.1f}\" y=\"{3:g}\" text-anchor=\"middle\">{4:g}</text>\n",
        at, kTop, kHeight - kBottom, kHeight - kBottom + 18, std::pow(10, power));
  }
  for (int i = 0; i <= 4; ++i) {
    const double loss = y.low + (y.high - y.low) * i / 4;
    text += fmt::format("<text x=\"{:g}\" y=\"{:.1f}\" text-anchor=\"end\">{:.3g}</text>\n", kLeft - 8,
                        down(loss) + 4, loss);
  }
  text +=
      fmt::format("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"middle\" fill=\"#666\">learning rate</text>\n",
                  (kLeft + kWidth - kRight) / 2, kHeight - 10);
  if (answer.rate)
    text +=
        fmt::format("<line x1=\"{0:.1f}\" y1=\"{1:g}\" x2=\"{0:.1f}\" y2=\"{2:g}\" stroke=\"#c0392b\"/>\n",
                    across(*answer.rate), kTop, kHeight - kBottom);
  std::string line;
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    const auto& [rate, loss] = curve.points[i];
    text += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\" fill=\"#1f5fa8\" fill-opacity=\"0.4\"><title>{:.3g}: "
        "{:.4g}</title></circle>\n",
        across(rate), down(loss), rate, loss);
    line += fmt::format("{:.1f},{:.1f} ", across(rate), down(answer.smooth[i]));
  }
  return text +
         fmt::format(
             "<polyline points=\"{}\" fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"2\"/>\n</svg>\n", line);
}

std::string text_of(const LrCurve& curve, const LrAnswer& answer, const TrainerConfig& config, int columns) {
  const std::string why = answer.rate ? fmt::format("learning rate {:g}: {}", *answer.rate, answer.why)
                                      : fmt::format("no suggestion: {}", answer.why);
  std::string text = chart_of(curve, answer, columns) + "\n" + terminal::wrapped(why, columns, 0) + "\n";
  if (!config.lr_curve.empty()) text += fmt::format("saved   {}\n", printable(config.lr_curve.string()));
  if (!answer.rate) return text;
  const double scaled = highest_rate(config) / config.lr;  // factor of --scale-lr
  return text +
         fmt::format("next    {}\n",
                     printable(command_with(config, "--lr", fmt::format("{:.3g}", *answer.rate / scaled))));
}

std::string command_with(const TrainerConfig& config, const std::string& flag, const std::string& value) {
  std::string text;
  for (std::size_t i = 0; i < config.command.size(); ++i) {
    const std::string& word = config.command[i];
    const std::string name = word.substr(0, word.find('='));
    if (word == "--find-lr" || word == "--find-batch-size") continue;
    if (i > 0 && (name == flag || name == "--lr-curve")) {
      i += name == word;  // skips its value
      continue;
    }
    text += terminal::quoted(word) + " ";
  }
  return fmt::format("{}{} {}", text, flag, value);
}

}  // namespace athanor
