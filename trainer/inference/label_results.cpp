#include "trainer/inference/label_results.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/ranges.h>

#include "tensor/base/printable.h"
#include "trainer/inference/detail/json.h"
#include "trainer/inference/detail/table_text.h"
#include "trainer/metrics/several_labels.h"
#include "trainer/readable.h"

namespace athanor {
namespace {

using detail::column;
using detail::percent;

/// Of one class of one image: -log of the probability of what is true, in nats.
double cross_entropy_of(double logit, bool is_there) {
  return std::max(logit, 0.0) - (is_there ? logit : 0) + std::log1p(std::exp(-std::abs(logit)));
}

}  // namespace

LabelResults::LabelResults(const ModelInfo& model, std::vector<std::int64_t> columns, std::int64_t worst)
    : CollectedResults(model, std::move(columns), worst) {
  for (std::int64_t c = 0; c < outputs(); ++c) thresholds_.push_back(model.threshold_of(c));
}

bool LabelResults::has(std::int64_t output, std::size_t row) const {
  return is(output)[row] >= 0.5;
}

bool LabelResults::says(std::int64_t output, std::size_t row) const {
  return probability_of(said(output)[row]) >= thresholds_[static_cast<std::size_t>(output)];
}

double LabelResults::loss_of(std::size_t row) const {
  double sum = 0;
  for (std::int64_t c = 0; c < outputs(); ++c) sum += cross_entropy_of(said(c)[row], has(c, row));
  return sum / static_cast<double>(outputs());
}

double LabelResults::loss() const {
  double sum = 0;
  for (std::size_t row = 0; std::cmp_less(row, images()); ++row) sum += loss_of(row);
  return sum / static_cast<double>(images());
}

std::vector<double> LabelResults::mistakes() const {
  std::vector<double> all;
  for (std::size_t row = 0; std::cmp_less(row, images()); ++row) {
    bool right = true;
    for (std::int64_t c = 0; c < outputs(); ++c) right = right && has(c, row) == says(c, row);
    all.push_back(right ? 0 : loss_of(row));
  }
  return all;
}

double LabelResults::exact() const {
  const std::vector<double> all = mistakes();
  return static_cast<double>(std::ranges::count(all, 0.0)) / static_cast<double>(images());
}

double LabelResults::average_precision_of(std::int64_t output) const {
  return average_precision(said(output), is(output));
}

double LabelResults::mean_average_precision() const {
  double sum = 0;
  std::int64_t classes = 0;
  for (std::int64_t c = 0; c < outputs(); ++c) {
    if (figures(c).images == 0) continue;
    sum += average_precision_of(c);
    ++classes;
  }
  return classes == 0 ? 0 : sum / static_cast<double>(classes);
}

ClassFigures LabelResults::figures(std::int64_t output) const {
  return figures_at(thresholds_[static_cast<std::size_t>(output)], said(output), is(output));
}

std::vector<ClassFigures> LabelResults::figures_of_all() const {
  std::vector<ClassFigures> all;
  for (std::int64_t c = 0; c < outputs(); ++c) all.push_back(figures(c));
  return all;
}

std::string LabelResults::headline(const ModelInfo& /*model*/) const {
  const std::vector<ClassFigures> all = figures_of_all();
  return fmt::format(
      "binary cross entropy {:.4f}   mAP {:.4f}   F1 {:.4f} (micro), {:.4f} (macro)   all labels right {}",
      loss(), mean_average_precision(), micro_f1(all), macro_f1(all), percent(exact()));
}

std::string LabelResults::text(const Evaluated& of) const {
  const auto name_of = [&](std::int64_t c) { return name(c); };
  const std::size_t names = detail::name_columns(outputs(), name_of);
  std::vector<double> precisions;
  for (std::int64_t c = 0; c < outputs(); ++c) precisions.push_back(average_precision_of(c));
  std::vector<std::int64_t> shown(static_cast<std::size_t>(outputs()));
  std::iota(shown.begin(), shown.end(), 0);
  std::string text;
  if (outputs() > detail::kClassesShown) {
    const auto precision = [&](std::int64_t c) { return precisions[static_cast<std::size_t>(c)]; };
    std::erase_if(shown, [&](std::int64_t c) { return std::isnan(precision(c)); });
    std::stable_sort(shown.begin(), shown.end(),
                     [&](std::int64_t a, std::int64_t b) { return precision(a) < precision(b); });
    if (std::ssize(shown) > detail::kWorstShown) shown.resize(detail::kWorstShown);
    text = fmt::format("the {} of {} classes with the lowest average precision\n", shown.size(),
                       with_commas(outputs()));
  }
  text += fmt::format("{}   {:>8}   {:>9}   {:>9}   {:>9}   {:>9}   {:>9}\n", column("class", names),
                      "images", "AP", "precision", "recall", "F1", "threshold");
  for (const std::int64_t c : shown) {
    const ClassFigures at = figures(c);
    text += fmt::format("{}   {:>8}   {:>9}   {:>9}   {:>9}   {:>9}   {:>9.3f}\n", column(name(c), names),
                        with_commas(at.images), percent(precisions[static_cast<std::size_t>(c)]),
                        percent(at.precision()), percent(at.recall()), percent(at.f1()),
                        thresholds_[static_cast<std::size_t>(c)]);
  }
  const std::vector<double> wrong = mistakes();
  const std::vector<std::size_t> worst = worst_by(wrong);
  if (worst.empty()) return text;
  const auto labels = [&](std::size_t row, auto is_one) {
    std::vector<std::string> all;
    for (std::int64_t c = 0; c < outputs(); ++c)
      if ((this->*is_one)(c, row)) all.push_back(printable(name(c)));
    return all.empty() ? "none" : fmt::format("{}", fmt::join(all, ", "));
  };
  text += fmt::format("\nthe worst {} of {} images with a wrong label, by falling loss\n", worst.size(),
                      with_commas(std::ssize(wrong) - std::ranges::count(wrong, 0.0)));
  for (const std::size_t row : worst)
    text += fmt::format("{:>8.2f}   {}: {}; predicted {}\n", wrong[row], where(of, row),
                        labels(row, &LabelResults::has), labels(row, &LabelResults::says));
  return text;
}

std::string LabelResults::json(const Evaluated& of) const {
  using Json = nlohmann::ordered_json;
  const std::vector<ClassFigures> figures = figures_of_all();
  Json all{{"model", of.model},
           {"data", of.data},
           {"task", name_of(LabelKind::multilabel)},
           {"images", images()},
           {"loss", loss()},
           {"mAP", mean_average_precision()},
           {"f1_micro", micro_f1(figures)},
           {"f1_macro", macro_f1(figures)},
           {"exact", exact()}};
  add_conditions(of, score(), all);
  Json& classes = all["classes"] = Json::array();
  for (std::int64_t c = 0; c < outputs(); ++c) {
    const ClassFigures& at = figures[static_cast<std::size_t>(c)];
    classes.push_back({{"class", name(c)},
                       {"index", c},
                       {"images", at.images},
                       {"predicted", at.predicted},
                       {"average_precision", average_precision_of(c)},
                       {"precision", at.precision()},
                       {"recall", at.recall()},
                       {"f1", at.f1()},
                       {"threshold", thresholds_[static_cast<std::size_t>(c)]}});
  }
  const std::vector<double> wrong = mistakes();
  const auto labels = [&](std::size_t row, auto is_one) {
    Json indices = Json::array();
    for (std::int64_t c = 0; c < outputs(); ++c)
      if ((this->*is_one)(c, row)) indices.push_back(c);
    return indices;
  };
  Json& worst = all["mistakes"] = Json::array();
  for (const std::size_t row : worst_by(wrong)) {
    Json entry{{"sample", sample(row)}};
    if (const std::string file = of.where ? of.where(sample(row)) : ""; !file.empty()) entry["file"] = file;
    entry.update({{"actual", labels(row, &LabelResults::has)},
                  {"predicted", labels(row, &LabelResults::says)},
                  {"loss", wrong[row]}});
    worst.push_back(std::move(entry));
  }
  return line_of(all);
}

}  // namespace athanor
