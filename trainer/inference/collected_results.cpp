#include "trainer/inference/detail/collected_results.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor::detail {

CollectedResults::CollectedResults(const ModelInfo& model, std::vector<std::int64_t> columns,
                                   std::int64_t worst)
    : names_(model.class_names),
      mean_(model.output_mean),
      scale_(model.output_scale),
      columns_(std::move(columns)),
      worst_(worst) {
  collected_.predictions.resize(columns_.size());
  collected_.targets.resize(columns_.size());
}

void CollectedResults::add(const Tensor& outputs, const Batch& batch, const Tensor& samples) {
  const Tensor& labels = batch.all_views(kLabelsField);
  const std::int64_t n = samples.dim(0), k = std::ssize(columns_);
  ATH_CHECK(outputs.shape() == (Shape{n, k}) && labels.shape() == (Shape{n, k}),
            "evaluation: must get outputs and labels [{}, {}], but got {} and {}", n, k, outputs.shape(),
            labels.shape());
  const std::vector<double> said = outputs.detach().to(kCpu).to_vector(), is = labels.to(kCpu).to_vector(),
                            index = samples.to_vector();
  for (std::int64_t row = 0; row < n; ++row) {
    if (index[static_cast<std::size_t>(row)] < 0) continue;
    samples_.push_back(static_cast<std::int64_t>(index[static_cast<std::size_t>(row)]));
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const double output = said[static_cast<std::size_t>(row * k) + c];
      collected_.predictions[c].push_back(scale_.empty() ? output : output * scale_[c] + mean_[c]);
      collected_.targets[c].push_back(is[static_cast<std::size_t>(row * k + columns_[c])]);
    }
  }
}

std::string CollectedResults::name(std::int64_t output) const {
  return names_.empty() ? fmt::to_string(output) : names_.at(static_cast<std::size_t>(output));
}

std::vector<std::size_t> CollectedResults::worst_by(const std::vector<double>& errors) const {
  const auto size = [&](std::size_t row) {
    return std::isnan(errors[row]) ? std::numeric_limits<double>::infinity() : errors[row];
  };
  std::vector<std::size_t> rows(errors.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  std::erase_if(rows, [&](std::size_t row) { return size(row) <= 0; });
  std::stable_sort(rows.begin(), rows.end(), [&](std::size_t a, std::size_t b) { return size(a) > size(b); });
  if (std::ssize(rows) > worst_) rows.resize(static_cast<std::size_t>(worst_));
  return rows;
}

std::string CollectedResults::where(const Evaluated& of, std::size_t row) const {
  const std::string file = of.where ? of.where(sample(row)) : "";
  return file.empty() ? fmt::format("image {}", sample(row)) : printable(file);
}

}  // namespace athanor::detail
