#include "trainer/metric_sums.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <sstream>
#include <utility>

#include "kernels/copy.h"
#include "kernels/on_device.h"
#include "optim/step.h"
#include "tensor/base/error.h"
#include "trainer/metrics/confusion.h"
#include "trainer/metrics/loss_and_accuracy.h"
#include "trainer/metrics/number_errors.h"
#include "trainer/metrics/several_labels.h"
#include "trainer/metrics/top_k.h"

namespace athanor {
namespace {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

std::string text_of(const Metric::Kind& kind) {
  std::string text(kind.name);
  if (kind.number != 0) text += fmt::format(":{}", kind.number);
  return kind.columns == 0 ? text : text + fmt::format(":{}", kind.columns);
}

/// The metric of a kind, as a checkpoint or another rank writes it.
std::unique_ptr<Metric> metric_of(std::string_view text) {
  Metric::Kind kind{text.substr(0, text.find(':'))};
  const std::string_view number = text.substr(std::min(kind.name.size() + 1, text.size()));
  const char* const end = number.data() + number.size();
  const auto [after, problem] = std::from_chars(number.data(), end, kind.number);
  if (problem == std::errc() && after != end) std::from_chars(after + 1, end, kind.columns);
  for (const MetricReduce reduce :
       {MetricReduce::mean, MetricReduce::sum, MetricReduce::min, MetricReduce::max, MetricReduce::exact})
    if (kind == Logged(reduce).kind()) return std::make_unique<Logged>(reduce);
  if (kind == LossAndAccuracy().kind()) return std::make_unique<LossAndAccuracy>();
  if (kind.name == "top") return std::make_unique<TopKAccuracy>(kind.number);
  if (kind.name == "confusion") return std::make_unique<Confusion>(kind.number, false);
  if (kind.name == "confusion_each") return std::make_unique<Confusion>(kind.number, true);
  if (kind.name == "several_labels") return std::make_unique<SeveralLabels>(kind.number, kind.columns);
  if (kind.name == "number_errors") return std::make_unique<NumberErrors>(kind.number, kind.columns);
  detail::fail<>("metrics: a metric must be of a known kind, but is '{}'", text);
}

Tensor slice(const Tensor& sums, std::int64_t first, std::int64_t count) {
  return Tensor::wrap(sums.storage(), sums.offset() + first, {count}, {1}, sums.dtype());
}

}  // namespace

void Metrics::add(std::string_view name, double value) {
  finite = finite && std::isfinite(value);
  if (name == "loss") {
    loss = value;
  } else if (name == "accuracy") {
    accuracy = value;
  } else {
    others.push_back({std::string(name), value});
  }
}

double Metrics::value_of(std::string_view name) const {
  if (name == "loss") return loss;
  if (name == "accuracy") return accuracy;
  const auto found =
      std::find_if(others.begin(), others.end(), [&](const NamedValue& one) { return one.name == name; });
  return found == others.end() ? kNotMeasured : found->value;
}

MetricSums::MetricSums(Device device, std::vector<ValueOfSums> values)
    : device_(device), values_(std::move(values)) {
  make_room(16);
}

// Names ----------------------------------------------------------------------------------------------------

const MetricSums::Entry* MetricSums::find(std::string_view name, const Metric& metric) const {
  for (const Entry& one : entries_) {
    if (one.name != name) continue;
    ATH_CHECK(one.metric->kind() == metric.kind(),
              "log: '{}' must be the same metric each time, but got {} after {}", name,
              text_of(metric.kind()), text_of(one.metric->kind()));
    return &one;
  }
  return nullptr;
}

const MetricSums::Entry& MetricSums::insert(std::string_view name, std::unique_ptr<Metric> metric) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_.-/").find(static_cast<char>(c)) != std::string_view::npos;
  };
  ATH_CHECK(!name.empty() && std::all_of(name.begin(), name.end(), allowed),
            "log: a name must be of letters, digits and '_', '.', '-', '/', but is '{}'", name);
  Entry one{std::string(name), std::move(metric), {}, {}};
  const std::int64_t count = one.metric->size();
  if (!one.metric->in_steps()) {
    one.sums = Tensor::zeros({count}, {DType::f64, device_});
    one.before = Tensor::zeros({count}, {DType::f64, device_});
    return entries_.emplace_back(std::move(one));
  }
  const auto at = static_cast<std::int64_t>(size(true));
  if (at + count > totals_.numel()) make_room(2 * (at + count));
  one.sums = slice(totals_, at, count);
  const auto end = std::find_if(entries_.begin(), entries_.end(),
                                [](const Entry& other) { return !other.metric->in_steps(); });
  return *entries_.insert(end, std::move(one));
}

// Captured steps add to where the sums were: moving them is rare, and seen by totals().
void MetricSums::make_room(std::int64_t sums) {
  for (Tensor* const all : {&totals_, &before_}) {
    const Tensor grown = Tensor::zeros({sums}, {DType::f64, device_});
    if (all->defined())
      on_device(device_, [&](auto& context) { kernels::copy(context, *all, slice(grown, 0, all->numel())); });
    *all = grown;
  }
  std::int64_t at = 0;
  for (Entry& one : entries_)
    if (one.metric->in_steps())
      one.sums = slice(totals_, std::exchange(at, at + one.metric->size()), one.metric->size());
}

std::string MetricSums::rows() const {
  std::string rows;
  for (const Entry& one : entries_)
    rows += fmt::format("{}{} {}", rows.empty() ? "" : ", ", one.name, text_of(one.metric->kind()));
  return rows;
}

void MetricSums::take_names(const std::string& rows) {
  if (!entries_.empty()) return;
  std::istringstream in(rows);
  for (std::string name, kind; in >> name >> kind;) {
    if (kind.ends_with(',')) kind.pop_back();
    (void)insert(name, metric_of(kind));
  }
}

std::size_t MetricSums::size(bool in_steps) const {
  std::size_t all = 0;
  for (const Entry& one : entries_) all += in_steps && !one.metric->in_steps() ? 0 : one.size();
  return all;
}

// Sums -----------------------------------------------------------------------------------------------------

void MetricSums::clear() {
  on_device(device_, [&](auto& context) {
    for_each_tensor([&](const Tensor& sums, const Tensor&) { kernels::fill(context, sums, 0); });
  });
}

void MetricSums::snapshot() {
  for_each_tensor([](const Tensor& sums, const Tensor& before) { before.copy_bytes_from(sums); });
}

void MetricSums::restore() {
  for_each_tensor([](const Tensor& sums, const Tensor& before) { sums.copy_bytes_from(before); });
}

void MetricSums::restore_if_skipped(StepBuffer& step) {
  on_device(device_, [&](auto& context) {
    const BoundStep bound(context, step);
    for_each_tensor(
        [&](const Tensor& sums, const Tensor& before) { kernels::copy_if_skipped(context, before, sums); });
  });
}

std::vector<double> MetricSums::read_rows() const {
  std::vector<double> all = totals_.to_vector();
  all.resize(size(true));
  return all;
}

std::vector<double> MetricSums::read() const {
  std::vector<double> all = read_rows();
  for (const Entry& one : entries_) {
    if (one.metric->in_steps()) continue;
    const std::vector<double> part = one.sums.to_vector();
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void MetricSums::write(const std::string& rows, const std::vector<double>& sums) {
  MetricSums read(device_, values_);
  read.take_names(rows);
  ATH_CHECK(sums.size() == read.size(), "metrics: {} names must have {} sums, but have {}",
            read.entries_.size(), read.size(), sums.size());
  read.for_each_entry([&](const Entry& to, std::size_t at) {
    const auto from = sums.begin() + static_cast<std::ptrdiff_t>(at);
    const std::vector<double> part(from, from + to.metric->size());
    to.sums.copy_bytes_from(Tensor::from(part, to.sums.shape()).to(device_));
  });
  *this = std::move(read);
}

StateDict MetricSums::state_dict(const std::vector<double>& of_ranks, int ranks) const {
  StateDict state;
  if (of_ranks.empty()) return state;
  state.set("names", rows());
  state.set("totals", Tensor::from(of_ranks, {ranks, std::ssize(of_ranks) / ranks}));
  return state;
}

void MetricSums::load_state_dict(const StateDict& state, int rank, int ranks) {
  if (state.empty()) return write("", {});
  const std::string names = state.text("names");
  const Tensor totals = state.tensor("totals");
  state.require_all_used("metrics");
  ATH_CHECK(totals.dtype() == DType::f64 && totals.rank() == 2 && totals.numel() > 0,
            "metrics: totals must be f64 with a row for each rank, but are {} {}", totals.dtype(),
            totals.shape());
  const std::vector<double> all = totals.to_vector();
  const auto size = totals.dim(1);
  write(names, std::vector<double>(static_cast<std::size_t>(size)));
  if (totals.dim(0) == ranks) {
    write(names, {all.begin() + size * rank, all.begin() + size * (rank + 1)});
  } else if (rank == 0) {
    write(names, joined(all));
  }
}

std::vector<double> MetricSums::joined(std::span<const double> of_ranks) const {
  std::vector<double> all(size());
  for (; !of_ranks.empty(); of_ranks = of_ranks.subspan(all.size()))
    for_each_entry([&](const Entry& one, std::size_t at) {
      one.metric->join(std::span(all).subspan(at, one.size()), of_ranks.subspan(at, one.size()));
    });
  return all;
}

// Values ---------------------------------------------------------------------------------------------------

// Of the metrics whose sums are there, and of what is computed from these.
std::int64_t MetricSums::values(std::span<const double> sums, const Metric::Emit& emit) const {
  std::int64_t samples = 0;
  std::vector<NamedValue> inputs;
  for_each_entry([&](const Entry& one, std::size_t at) {
    if (at + one.size() > sums.size()) return;
    const bool is_input = std::any_of(values_.begin(), values_.end(), [&](const ValueOfSums& value) {
      return std::find(value.from.begin(), value.from.end(), one.name) != value.from.end();
    });
    const Metric::Emit keep = [&](std::string_view name, double value) {
      inputs.push_back({std::string(name), value});
    };
    samples =
        std::max(samples, one.metric->values(one.name, sums.subspan(at, one.size()), is_input ? keep : emit));
  });
  for (const ValueOfSums& one : values_) {
    std::vector<double> from;
    for (const std::string& name : one.from)
      for (const NamedValue& input : inputs)
        if (input.name == name) from.push_back(input.value);
    if (from.size() == one.from.size()) emit(one.name, one.value(from));
  }
  return samples;
}

Metrics MetricSums::mean(std::span<const double> sums) const {
  Metrics metrics = Metrics::not_measured();
  metrics.samples = values(sums, [&](std::string_view name, double value) { metrics.add(name, value); });
  return metrics;
}

void MetricSums::values_of_step(std::span<const double> before, std::span<double> after,
                                std::vector<NamedValue>& values) const {
  constexpr std::string_view kTraining = "train_";
  if (values.empty()) values = {{"train_loss"}, {"train_accuracy"}};
  for (NamedValue& one : values) one.value = kNotMeasured;
  const std::size_t all = std::min({size(true), before.size(), after.size()});
  for_each_entry([&](const Entry& one, std::size_t at) {
    if (at + one.size() <= all)
      one.metric->subtract(after.subspan(at, one.size()), before.subspan(at, one.size()));
  });
  this->values(after.first(all), [&](std::string_view name, double value) {
    const auto found = std::find_if(values.begin(), values.end(), [&](const NamedValue& one) {
      return std::string_view(one.name).substr(kTraining.size()) == name;
    });
    if (found != values.end()) {
      found->value = value;
    } else {
      values.push_back({fmt::format("{}{}", kTraining, name), value});
    }
  });
}

}  // namespace athanor
