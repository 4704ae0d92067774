// Presentation of a learning-rate range test: on a terminal, as SVG, and the resulting command.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tensor/base/printable.h"
#include "trainer/config.h"
#include "trainer/detail/plot.h"
#include "trainer/detail/terminal.h"
#include "trainer/finders/lr_finder.h"

namespace athanor {
namespace {

plot::Axis rates(const LrCurve& curve) {
  return plot::log_axis(curve.points.front().rate / 1.000001, curve.points.back().rate * 1.000001, 12);
}

/// From the lowest loss to the highest below the limit.
plot::Axis losses(const LrCurve& curve, const LrAnswer& answer) {
  auto [low, high] = std::minmax_element(answer.smooth.begin(), answer.smooth.end());
  plot::Axis axis{*low, *high};
  for (const LrCurve::Point& point : curve.points) {
    axis.low = std::min(axis.low, point.loss);
    axis.high = std::max(axis.high, std::min(point.loss, curve.limit()));
  }
  return plot::linear_axis(axis.low, axis.high, 5);
}

/// Where a value stands on an axis; one beyond its ends, at the end.
double place(const plot::Axis& axis, double value) {
  return std::clamp(axis.at(value), 0.0, 1.0);
}

}  // namespace

std::string chart_of(const LrCurve& curve, const LrAnswer& answer, int columns) {
  if (curve.points.size() < 2) return {};
  constexpr int kRows = 12, kMargin = 10;  // columns of the losses' axis
  const int width = std::clamp(columns - kMargin - 1, 20, 100);
  const plot::Axis x = rates(curve), y = losses(curve, answer);
  std::vector<std::vector<std::string>> cells(kRows,
                                              std::vector<std::string>(static_cast<std::size_t>(width), " "));
  const auto column = [&](double rate) {
    return static_cast<std::size_t>(std::lround(place(x, rate) * (width - 1)));
  };
  const auto row = [&](double loss) {
    return static_cast<std::size_t>(std::lround((1 - place(y, loss)) * (kRows - 1)));
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
  for (const double tick : x.ticks) {
    const std::size_t at = kMargin + column(tick);
    const std::string name = fmt::format("{:g}", tick);
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
  plot::Svg svg(kWidth, kHeight,
                answer.rate ? fmt::format("learning rate {:g}", *answer.rate) : "no suggestion", answer.why,
                ".curve { fill: none; stroke: #1f5fa8; stroke-width: 2 } .loss { fill: #1f5fa8; "
                "fill-opacity: .4 } .answer { stroke: #c0392b }");
  if (curve.points.size() < 2) return svg.done();
  const plot::Axis x = rates(curve), y = losses(curve, answer);
  const auto across = [&](double rate) { return kLeft + place(x, rate) * (kWidth - kLeft - kRight); };
  const auto down = [&](double loss) { return kTop + (1 - place(y, loss)) * (kHeight - kTop - kBottom); };
  for (const double rate : x.ticks) {
    svg.line({across(rate), kTop}, {across(rate), kHeight - kBottom}, "class=\"grid\"");
    svg.text({across(rate), kHeight - kBottom + 18}, fmt::format("{:g}", rate), "text-anchor=\"middle\"");
  }
  for (const double loss : y.ticks) {
    svg.line({kLeft, down(loss)}, {kWidth - kRight, down(loss)}, "class=\"grid\"");
    svg.text({kLeft - 8, down(loss) + 4}, fmt::format("{:.3g}", loss), "text-anchor=\"end\"");
  }
  svg.text({(kLeft + kWidth - kRight) / 2, kHeight - 10}, "learning rate",
           "text-anchor=\"middle\" class=\"muted\"");
  if (answer.rate)
    svg.line({across(*answer.rate), kTop}, {across(*answer.rate), kHeight - kBottom}, "class=\"answer\"");
  std::vector<plot::Point> smooth;
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    const auto& [rate, loss] = curve.points[i];
    svg.circle({across(rate), down(loss)}, 2, "class=\"loss\"", fmt::format("{:.3g}: {:.4g}", rate, loss));
    smooth.push_back({across(rate), down(answer.smooth[i])});
  }
  svg.line(smooth, "class=\"curve\"");
  return svg.done();
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
