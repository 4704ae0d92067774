#include <algorithm>

#include <fmt/format.h>

#include "tensor/base/printable.h"
#include "trainer/detail/plot.h"
#include "trainer/detail/terminal.h"
#include "trainer/inference/evaluation.h"
#include "trainer/readable.h"

namespace athanor {
namespace {

constexpr std::int64_t kNamed = 60;  // maximum number of classes with space for names
constexpr double kSide = 960;        // pixels shared by all classes
constexpr int kLetter = 7;           // width of a 12-pixel letter
constexpr std::string_view kStyle =
    ".right { fill: #1f5fa8 } .wrong { fill: #c0392b } .ground { fill: #f4f4f4 } text.full { fill: #fff }";

double cell_side(std::int64_t classes) {
  return std::clamp(kSide / static_cast<double>(classes), 1.0, 36.0);
}

/// Width of the longest name in pixels.
double names_side(const Evaluation& evaluation) {
  int widest = 1;
  for (std::int64_t c = 0; c < evaluation.classes(); ++c)
    widest = std::max(widest, terminal::width_of(printable(evaluation.name(c))));
  return evaluation.classes() <= kNamed ? 16 + kLetter * widest : 16;
}

/// A pair of classes: blue if the model is right, red if not; the opacity is its share of the row.
void draw_cell(plot::Svg& svg, const Evaluation& evaluation, std::pair<std::int64_t, std::int64_t> pair,
               std::int64_t images, plot::Point origin) {
  const auto [actual, predicted] = pair;
  const double side = cell_side(evaluation.classes());
  const double share = static_cast<double>(images) / static_cast<double>(evaluation.figures(actual).images);
  const plot::Point corner{origin.x + side * static_cast<double>(predicted),
                           origin.y + side * static_cast<double>(actual)};
  svg.rect(corner, side, side,
           fmt::format("class=\"{}\" fill-opacity=\"{:.3f}\"", actual == predicted ? "right" : "wrong",
                       0.1 + 0.9 * share),
           fmt::format("{} of {}: {} predicted as {}", images, evaluation.figures(actual).images,
                       evaluation.name(actual), evaluation.name(predicted)));
  if (side >= 24)
    svg.text({corner.x + side / 2, corner.y + side / 2 + 4}, fmt::to_string(images),
             share <= 0.5 ? "text-anchor=\"middle\"" : "text-anchor=\"middle\" class=\"full\"");
}

void draw_names(plot::Svg& svg, const Evaluation& evaluation, plot::Point origin) {
  const double side = cell_side(evaluation.classes());
  for (std::int64_t c = 0; c < evaluation.classes(); ++c) {
    const double middle = side * (static_cast<double>(c) + 0.5);
    svg.text({origin.x - 6, origin.y + middle + 4}, evaluation.name(c), "text-anchor=\"end\"");
    svg.text(
        {}, evaluation.name(c),
        fmt::format("transform=\"translate({:g} {:g}) rotate(-90)\"", origin.x + middle + 4, origin.y - 6));
  }
}

}  // namespace

std::string svg_of(const Evaluation& evaluation, bool inlined) {
  const double side = cell_side(evaluation.classes()) * static_cast<double>(evaluation.classes());
  const double names = names_side(evaluation);
  const plot::Point origin{names + 20, names + (inlined ? 0 : 52)};
  const double width = origin.x + side, height = origin.y + side + 20;
  const std::string title =
      fmt::format("{} images, {:.2f} % correct", with_commas(evaluation.images()), 100 * evaluation.top1());
  plot::Svg svg =
      inlined ? plot::Svg(width, height,
                          fmt::format(
                              "width=\"{:g}\" height=\"{:g}\" role=\"img\" aria-label=\"Confusion matrix of "
                              "{}\"",
                              width, height, title))
              : plot::Svg(std::max(width + 20, 420.0), height, title,
                          "rows: true class; columns: predicted class", kStyle);
  svg.rect(origin, side, side, "class=\"ground\"");
  for (const auto& [pair, images] : evaluation.confusion()) {
    if (pair.second != Evaluation::kNone) draw_cell(svg, evaluation, pair, images, origin);
  }
  if (evaluation.classes() <= kNamed) draw_names(svg, evaluation, origin);
  return svg.done();
}

}  // namespace athanor
