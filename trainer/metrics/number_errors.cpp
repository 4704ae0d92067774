#include "trainer/metrics/number_errors.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace athanor {

NumberFigures figures_of(std::span<const double> predictions, std::span<const double> targets) {
  const auto n = static_cast<double>(targets.size());
  const double mean = std::accumulate(targets.begin(), targets.end(), 0.0) / n;
  double absolute = 0, squared = 0, spread = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const double error = predictions[i] - targets[i], from_mean = targets[i] - mean;
    absolute += std::abs(error);
    squared += error * error;
    spread += from_mean * from_mean;
  }
  const auto [least, most] = std::ranges::minmax(targets);  // rounding may give equal targets another mean
  const double r2 = least < most ? 1 - squared / spread : squared == 0 ? 1 : squared > 0 ? 0 : squared;
  return {absolute / n, std::sqrt(squared / n), r2};
}

void NumberErrors::figures(const PredictedColumns& measured, const Emit& emit) const {
  std::vector<NumberFigures> columns;
  for (std::size_t c = 0; c < measured.targets.size(); ++c)
    columns.push_back(figures_of(measured.predictions[c], measured.targets[c]));
  constexpr std::pair<const char*, double NumberFigures::*> kFigures[]{
      {"mae", &NumberFigures::mae}, {"rmse", &NumberFigures::rmse}, {"r2", &NumberFigures::r2}};
  for (const auto& [name, value] : kFigures) {
    double sum = 0;
    for (const NumberFigures& column : columns) sum += column.*value;
    emit(name, sum / static_cast<double>(columns.size()));
  }
  for (std::size_t c = 0; c < columns.size() && columns.size() > 1; ++c)
    for (const auto& [name, value] : kFigures) emit(fmt::format("{}/{}", name, c), columns[c].*value);
}

}  // namespace athanor
