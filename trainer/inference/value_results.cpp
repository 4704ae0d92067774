#include "trainer/inference/value_results.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "tensor/base/printable.h"
#include "trainer/inference/detail/json.h"
#include "trainer/inference/detail/table_text.h"

namespace athanor {
namespace {

using detail::column;

std::string figures_text(const NumberFigures& figures) {
  return fmt::format("MAE {:.4g}   RMSE {:.4g}   R2 {:.4f}", figures.mae, figures.rmse, figures.r2);
}

}  // namespace

NumberFigures ValueResults::figures(std::int64_t output) const {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  return images() == 0 ? NumberFigures{kNaN, kNaN, kNaN} : figures_of(said(output), is(output));
}

NumberFigures ValueResults::mean() const {
  NumberFigures sum{};
  for (std::int64_t c = 0; c < outputs(); ++c) {
    const NumberFigures one = figures(c);
    sum = {sum.mae + one.mae, sum.rmse + one.rmse, sum.r2 + one.r2};
  }
  const auto n = static_cast<double>(outputs());
  return {sum.mae / n, sum.rmse / n, sum.r2 / n};
}

std::vector<double> ValueResults::errors() const {
  std::vector<double> all(static_cast<std::size_t>(images()));
  for (std::int64_t c = 0; c < outputs(); ++c) {
    const double usual = figures(c).rmse;
    if (usual == 0) continue;
    for (std::size_t row = 0; row < all.size(); ++row) {
      const double error = (said(c)[row] - is(c)[row]) / usual;
      all[row] += error * error / static_cast<double>(outputs());
    }
  }
  for (double& error : all) error = std::sqrt(error);
  return all;
}

std::string ValueResults::headline(const ModelInfo& /*model*/) const {
  return figures_text(mean()) + (outputs() > 1 ? fmt::format("   (means of {} values)", outputs()) : "");
}

std::string ValueResults::text(const Evaluated& of) const {
  const auto name_of = [&](std::int64_t c) { return name(c); };
  const std::size_t names = detail::name_columns(outputs(), name_of);
  std::string text =
      fmt::format("{}   {:>11}   {:>11}   {:>9}\n", column("value", names), "MAE", "RMSE", "R2");
  for (std::int64_t c = 0; c < outputs(); ++c) {
    const NumberFigures one = figures(c);
    text += fmt::format("{}   {:>11.5g}   {:>11.5g}   {:>9.4f}\n", column(name(c), names), one.mae, one.rmse,
                        one.r2);
  }
  const std::vector<std::size_t> worst = worst_by(errors());
  if (worst.empty()) return text;
  text += fmt::format("\nthe {} images with the largest errors\n", worst.size());
  for (const std::size_t row : worst) {
    std::string pairs;
    for (std::int64_t c = 0; c < outputs(); ++c)
      pairs += fmt::format("{}{} {:.5g}, predicted {:.5g}", c == 0 ? "" : "; ", printable(name(c)),
                           is(c)[row], said(c)[row]);
    text += fmt::format("   {}: {}\n", where(of, row), pairs);
  }
  return text;
}

std::string ValueResults::json(const Evaluated& of) const {
  using Json = nlohmann::ordered_json;
  const NumberFigures mean = this->mean();
  Json all{{"model", of.model},  {"data", of.data}, {"task", name_of(LabelKind::values)},
           {"images", images()}, {"mae", mean.mae}, {"rmse", mean.rmse},
           {"r2", mean.r2}};
  add_conditions(of, score(), all);
  Json& values = all["values"] = Json::array();
  for (std::int64_t c = 0; c < outputs(); ++c) {
    const NumberFigures one = figures(c);
    values.push_back({{"name", name(c)}, {"index", c}, {"mae", one.mae}, {"rmse", one.rmse}, {"r2", one.r2}});
  }
  const auto numbers = [&](const auto& of_output, std::size_t row) {
    Json list = Json::array();
    for (std::int64_t c = 0; c < outputs(); ++c) list.push_back((this->*of_output)(c)[row]);
    return list;
  };
  Json& worst = all["mistakes"] = Json::array();
  for (const std::size_t row : worst_by(errors())) {
    Json entry{{"sample", sample(row)}};
    if (const std::string file = of.where ? of.where(sample(row)) : ""; !file.empty()) entry["file"] = file;
    entry.update(
        {{"actual", numbers(&ValueResults::is, row)}, {"predicted", numbers(&ValueResults::said, row)}});
    worst.push_back(std::move(entry));
  }
  return line_of(all);
}

}  // namespace athanor
