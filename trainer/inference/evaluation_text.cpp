#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

#include "tensor/base/printable.h"
#include "trainer/detail/terminal.h"
#include "trainer/inference/detail/table_text.h"
#include "trainer/inference/evaluation.h"
#include "trainer/readable.h"

namespace athanor {
namespace {

constexpr std::int64_t kMatrixShown = 20;
constexpr std::size_t kLongestColumn = 12, kLine = 100;  // of the confusion matrix

using detail::column;
using detail::kClassesShown;
using detail::kWorstShown;
using detail::percent;

/// All classes if they are few, else those with the lowest recall.
std::vector<std::int64_t> classes_shown(const Evaluation& evaluation) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(evaluation.classes()));
  std::iota(all.begin(), all.end(), 0);
  if (evaluation.classes() <= kClassesShown) return all;
  std::erase_if(all, [&](std::int64_t c) { return evaluation.figures(c).images == 0; });
  std::stable_sort(all.begin(), all.end(), [&](std::int64_t a, std::int64_t b) {
    return evaluation.figures(a).recall() < evaluation.figures(b).recall();
  });
  if (std::ssize(all) > kWorstShown) all.resize(kWorstShown);
  return all;
}

std::string class_table(const Evaluation& evaluation, std::size_t names) {
  const std::vector<std::int64_t> shown = classes_shown(evaluation);
  std::string text;
  if (evaluation.classes() > kClassesShown)
    text = fmt::format("the {} of {} classes with the lowest recall\n", shown.size(),
                       with_commas(evaluation.classes()));
  text +=
      fmt::format("{}   {:>8}   {:>9}   {:>9}\n", column("class", names), "images", "precision", "recall");
  for (const std::int64_t c : shown) {
    const auto& figures = evaluation.figures(c);
    text += fmt::format("{}   {:>8}   {:>9}   {:>9}\n", column(evaluation.name(c), names),
                        with_commas(figures.images), percent(figures.precision()), percent(figures.recall()));
  }
  return text;
}

std::string matrix(const Evaluation& evaluation, std::size_t names) {
  std::int64_t largest = evaluation.classes() - 1;
  for (const auto& [pair, images] : evaluation.confusion()) largest = std::max(largest, images);
  std::size_t width = std::max(fmt::to_string(largest).size(), std::size_t{3}) + 1, longest = 0;
  for (std::int64_t c = 0; c < evaluation.classes(); ++c)
    longest = std::max(longest, static_cast<std::size_t>(terminal::width_of(printable(evaluation.name(c)))));
  // Columns have names where these fit into a line; else indices, and so have the rows.
  const bool named = longest <= kLongestColumn &&
                     (longest + 1) * static_cast<std::size_t>(evaluation.classes()) + names <= kLine;
  if (named) width = std::max(width, longest + 1);
  const std::size_t digits = named ? 0 : fmt::to_string(evaluation.classes() - 1).size();
  const auto row_of = [&](std::int64_t c) {
    return named ? column(evaluation.name(c), names)
                 : fmt::format("{:>{}} {}", c, digits, column(evaluation.name(c), names));
  };
  std::string text = "confusion: rows are true classes, columns predicted classes\n";
  text += std::string(names + (named ? 0 : digits + 1), ' ');
  for (std::int64_t c = 0; c < evaluation.classes(); ++c)
    text += fmt::format("{:>{}}", named ? printable(evaluation.name(c)) : fmt::to_string(c), width);
  text += '\n';
  for (std::int64_t is = 0; is < evaluation.classes(); ++is) {
    text += row_of(is);
    for (std::int64_t said = 0; said < evaluation.classes(); ++said) {
      const auto found = evaluation.confusion().find({is, said});
      text += fmt::format("{:>{}}",
                          found == evaluation.confusion().end() ? "." : fmt::to_string(found->second), width);
    }
    text += '\n';
  }
  return text;
}

/// The most frequent confusions, if a matrix would not fit.
std::string pairs(const Evaluation& evaluation) {
  using Cell = std::pair<std::pair<std::int64_t, std::int64_t>, std::int64_t>;
  std::vector<Cell> cells;
  for (const auto& cell : evaluation.confusion()) {
    if (cell.first.first != cell.first.second) cells.emplace_back(cell);
  }
  if (cells.empty()) return {};
  std::stable_sort(cells.begin(), cells.end(),
                   [](const Cell& a, const Cell& b) { return a.second > b.second; });
  if (std::ssize(cells) > kWorstShown) cells.resize(kWorstShown);
  std::string text = "most often confused\n";
  for (const auto& [pair, images] : cells)
    text += fmt::format("{:>8} of {} predicted as {}\n", with_commas(images),
                        printable(evaluation.name(pair.first)), printable(evaluation.name(pair.second)));
  return text;
}

std::string mistakes(const Evaluation& evaluation, const Evaluated& of) {
  if (evaluation.worst().empty()) return {};
  const auto all = evaluation.mistakes(), shown = std::ssize(evaluation.worst());
  std::string text = all == shown ? fmt::format("{} mistake{}", all, all == 1 ? "" : "s")
                                  : fmt::format("the worst {} of {} mistakes", shown, with_commas(all));
  text += fmt::format(", by {}loss\n", all == 1 ? "" : "falling ");
  for (const Evaluation::Mistake& one : evaluation.worst()) {
    const std::string where = of.where ? of.where(one.sample) : "";
    text += fmt::format("{:>8.2f}   {}: {}, predicted {}{}\n", one.loss,
                        where.empty() ? fmt::format("image {}", one.sample) : printable(where),
                        printable(evaluation.name(one.label)), printable(evaluation.name(one.predicted)),
                        std::isnan(one.probability) ? "" : fmt::format(" ({:.1f} %)", 100 * one.probability));
  }
  return text;
}

}  // namespace

std::string text_of(const Evaluation& evaluation, const Evaluated& of) {
  const std::size_t names =
      detail::name_columns(evaluation.classes(), [&](std::int64_t c) { return evaluation.name(c); });
  std::string text = class_table(evaluation, names) + '\n';
  text += evaluation.classes() <= kMatrixShown ? matrix(evaluation, names) : pairs(evaluation);
  std::int64_t no_number = 0;
  for (const auto& [pair, images] : evaluation.confusion())
    no_number += pair.second == Evaluation::kNone ? images : 0;
  if (no_number > 0)
    text += fmt::format("for {} images the model predicts nothing: their logits are NaN\n",
                        with_commas(no_number));
  const std::string worst = mistakes(evaluation, of);
  return worst.empty() ? text : text + '\n' + worst;
}

}  // namespace athanor
