#include <algorithm>

#include <fmt/format.h>

#include "tensor/printable.h"
#include "trainer/detail/terminal.h"
#include "trainer/inference/evaluation.h"
#include "trainer/readable.h"
#include "trainer/report/detail/html.h"

namespace athanor {
namespace {

using report::escaped;

constexpr std::int64_t kNamed = 60;  // maximum number of classes with space for names
constexpr double kSide = 960;        // pixels shared by all classes
constexpr int kLetter = 7;           // width of a 12-pixel letter

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
std::string cell(const Evaluation& evaluation, std::pair<std::int64_t, std::int64_t> pair,
                 std::int64_t images, double left, double top, bool inlined) {
  const auto [is, said] = pair;
  const double side = cell_side(evaluation.classes());
  const double share = static_cast<double>(images) / static_cast<double>(evaluation.figures(is).images);
  const double x = left + side * static_cast<double>(said), y = top + side * static_cast<double>(is);
  const char* const fill = inlined      ? (is == said ? "class=\"right\"" : "class=\"wrong\"")
                           : is == said ? "fill=\"#1f5fa8\""
                                        : "fill=\"#c0392b\"";
  std::string text = fmt::format(
      "<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" {} fill-opacity=\"{:.3f}\"><title>{} of "
      "{}: {} predicted as {}</title></rect>\n",
      x, y, side, side, fill, inlined ? 0.06 + 0.94 * share : 0.15 + 0.85 * share, images,
      evaluation.figures(is).images, escaped(evaluation.name(is)), escaped(evaluation.name(said)));
  if (side >= 24)
    text += fmt::format("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"middle\" {}>{}</text>\n", x + side / 2,
                        y + side / 2 + 4,
                        share <= 0.5 ? ""
                        : inlined    ? "class=\"full\""
                                     : "fill=\"#fff\"",
                        images);
  return text;
}

std::string names(const Evaluation& evaluation, double left, double top) {
  std::string text;
  const double side = cell_side(evaluation.classes());
  for (std::int64_t c = 0; c < evaluation.classes(); ++c) {
    const std::string name = escaped(evaluation.name(c));
    const double middle = side * (static_cast<double>(c) + 0.5);
    text += fmt::format("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"end\">{}</text>\n", left - 6,
                        top + middle + 4, name);
    text += fmt::format("<text transform=\"translate({:g} {:g}) rotate(-90)\">{}</text>\n", left + middle + 4,
                        top - 6, name);
  }
  return text;
}

}  // namespace

std::string svg_of(const Evaluation& evaluation, bool inlined) {
  const double side = cell_side(evaluation.classes()) * static_cast<double>(evaluation.classes());
  const double head = inlined ? 0 : 52, before = names_side(evaluation), left = before + 20,
               top = head + before;
  const double width = inlined ? left + side : std::max(left + side + 20, 420.0), height = top + side + 20;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" viewBox=\"0 0 {0:g} "
      "{1:g}\" role=\"img\" aria-label=\"Confusion matrix of {2} images, {3:.2f} % correct\" "
      "font-family=\"sans-serif\" font-size=\"12\" fill=\"{4}\">\n",
      width, height, with_commas(evaluation.images()), 100 * evaluation.top1(),
      inlined ? "currentColor" : "#222");
  if (!inlined)
    text += fmt::format(
        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"20\" y=\"24\" font-size=\"15\">{} "
        "images, {:.2f} % correct</text>\n<text x=\"20\" y=\"42\" fill=\"#666\">rows: true class; columns: "
        "predicted class</text>\n",
        with_commas(evaluation.images()), 100 * evaluation.top1());
  text += fmt::format("<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" {}/>\n", left, top, side,
                      side, inlined ? "class=\"ground\"" : "fill=\"#f4f4f4\"");
  for (const auto& [pair, images] : evaluation.confusion()) {
    if (pair.second != Evaluation::kNone) text += cell(evaluation, pair, images, left, top, inlined);
  }
  if (evaluation.classes() <= kNamed) text += names(evaluation, left, top);
  return text + "</svg>\n";
}

}  // namespace athanor
