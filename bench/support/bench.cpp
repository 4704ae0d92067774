#include "bench/support/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/ranges.h>

#include "bench/support/quantile.h"
#include "bench/support/requests.h"
#include "kernels/copy.h"
#include "kernels/cpu/context.h"

namespace athanor::bench {
namespace {

struct Case {
  Id id;
  Work work;
  std::function<Prepared()> prepare;
};

std::vector<std::shared_ptr<const Case>> all_cases;

// The prepared case lives until another one takes its turn: Google Benchmark calls a function several times.
const Case* current_case = nullptr;
Prepared current;

/// Makes the case ready unless it is. Returns what is wrong with its result, or "".
std::string make_ready(const Case& row) {
  if (std::exchange(current_case, &row) != &row) {
    current = Prepared();
    current = row.prepare();
  }
  if (current.max_error <= current.tolerance) return {};
  return fmt::format("max error {:.3g}, but at most {:.3g} is allowed", current.max_error, current.tolerance);
}

double seconds_of(const std::function<void()>& run, std::int64_t times) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < times; ++i) run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Warms up: caches, primitives, the allocator. Returns how many runs make a sample that is long against the
/// clock's own cost.
std::int64_t warm_up() {
  seconds_of(current.run, 1);
  std::int64_t batch = 1;
  while (seconds_of(current.run, batch) < 5e-6) batch *= 2;
  return batch;
}

Roofs roofs_of(const Work& work) {
  Roofs roofs;
  if (work.bytes > 0) roofs.bytes = {copy_roof(work.bytes), "copy"};
  if (work.flops > 0) roofs.flops = {work.peak(), work.peak == int8_peak ? "int8" : "FMA"};
  return roofs;
}

void run_case(benchmark::State& state, const Case& row) {
  if (const std::string wrong = make_ready(row); !wrong.empty()) {
    state.SkipWithError(wrong.c_str());
    return;
  }
  const std::int64_t batch = warm_up();
  std::vector<double> samples;
  while (state.KeepRunningBatch(batch))
    samples.push_back(seconds_of(current.run, batch) / static_cast<double>(batch));
  report(state, row.work, roofs_of(row.work), samples, current.max_error);
}

/// Samples for so many seconds, at least three.
std::vector<double> sample_for(double seconds, double planted_slowdown) {
  using Clock = std::chrono::steady_clock;
  const std::int64_t batch = warm_up();
  std::vector<double> samples;
  for (const auto start = Clock::now();
       samples.size() < 3 || std::chrono::duration<double>(Clock::now() - start).count() < seconds;) {
    const auto began = Clock::now();
    double took = seconds_of(current.run, batch);
    if (planted_slowdown > 0) {
      const double until = took * (1 + planted_slowdown);
      while (took < until) took = std::chrono::duration<double>(Clock::now() - began).count();
    }
    samples.push_back(took / static_cast<double>(batch));
  }
  return samples;
}

std::string answer(const Case& row, const std::string& variant, double seconds,
                   const WorkerOptions& options) {
  if (variant == "roof") {
    const Roofs roofs = roofs_of(row.work);
    return fmt::format(R"({{"bytes_per_s":{:.6g},"flops_per_s":{:.6g}}})", roofs.bytes.per_second,
                       roofs.flops.per_second);
  }
  if (const std::string wrong = make_ready(row); !wrong.empty())
    return fmt::format(R"({{"error":"{}"}})", wrong);
  return fmt::format(R"({{"seconds":[{:.6g}]}})",
                     fmt::join(sample_for(seconds, options.planted_slowdown), ","));
}

}  // namespace

std::string Id::str() const {
  return fmt::format("{}/{}/{}/{}/{}/{}", op, dir, dtype, device.str(), shape, impl);
}

void add(const Id& id, const Work& work, std::function<Prepared()> prepare) {
  const auto row = std::make_shared<const Case>(Case{id, work, std::move(prepare)});
  all_cases.push_back(row);
  benchmark::RegisterBenchmark(id.str().c_str(), [row](benchmark::State& state) {
    run_case(state, *row);
  })->Unit(benchmark::kMicrosecond);
}

int serve_rows(const std::string& binary, const WorkerOptions& options) {
  std::string rows;
  for (const auto& row : all_cases) {
    rows += fmt::format(R"({}"{}":{{"bytes":{:.6g},"flops":{:.6g}}})", rows.empty() ? "" : ",", row->id.str(),
                        row->work.bytes, row->work.flops);
  }
  const std::string about =
      fmt::format(R"({{"name":"{}","threads":{},"cases":{{{}}}}})", binary, cpu_context().threads(), rows);
  return answer_requests(
      about, 0.05, [&](const std::string& name, const std::string& variant, double seconds) {
        const auto found = std::find_if(all_cases.begin(), all_cases.end(),
                                        [&](const auto& row) { return row->id.str() == name; });
        return found == all_cases.end() ? R"({"error":"no such row"})"
                                        : answer(**found, variant, seconds, options);
      });
}

void report(benchmark::State& state, const Work& work, const Roofs& roofs, std::vector<double>& seconds,
            double max_error) {
  const double median = quantile(seconds, 0.5);
  state.counters["median_us"] = median * 1e6;
  state.counters["p10_us"] = quantile(seconds, 0.1) * 1e6;
  state.counters["p90_us"] = quantile(seconds, 0.9) * 1e6;
  state.counters["max_err"] = max_error;
  if (work.elements > 0) state.counters["B/element"] = work.bytes / work.elements;
  const std::pair<double, const Roof*> parts[] = {{work.bytes, &roofs.bytes}, {work.flops, &roofs.flops}};
  const char* const units[] = {"GB/s", "GFLOP/s"};
  double best = 0;
  for (int i = 0; i < 2; ++i) {
    const auto [amount, roof] = parts[i];
    if (amount <= 0) continue;
    state.counters[units[i]] = amount / median * 1e-9;
    const double reached = roof->per_second > 0 ? amount / median / roof->per_second : 0;
    if (reached > best) {
      best = reached;
      state.SetLabel(roof->name);
    }
  }
  if (best > 0) state.counters["roof_%"] = 100 * best;
}

std::string shape_name(const Shape& shape) {
  return shape.rank() == 0 ? "1" : fmt::format("{}", fmt::join(shape.begin(), shape.end(), "x"));
}

Tensor filled(const Shape& shape, DType dtype, double low, double high, std::uint64_t seed) {
  const Tensor values = Tensor::empty(shape, {DType::f64, kCpu});
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    values.data<double>()[i] = low + (high - low) * static_cast<double>(seed >> 11) * 0x1p-53;
  }
  if (dtype == DType::f64) return values;
  const Tensor converted = Tensor::empty(shape, {dtype, kCpu});
  kernels::copy(cpu_context(), values, converted);
  return converted;
}

double max_error(const Tensor& got, const std::vector<double>& expected) {
  ATH_CHECK(got.numel() == static_cast<std::int64_t>(expected.size()),
            "max_error: both must have equally many elements, but got {} and {}", got.numel(),
            expected.size());
  const std::vector<double> values = got.to_vector();
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i]))) continue;
    const double error = std::abs(values[i] - expected[i]) / (1 + std::abs(expected[i]));
    if (std::isnan(error)) return error;
    worst = std::max(worst, error);
  }
  return worst;
}

double max_error(const Tensor& got, const Tensor& expected) {
  return max_error(got, expected.to_vector());
}

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-53;
    case DType::f16: return 0x1p-11;
    case DType::bf16: return 0x1p-8;
    default: return 0x1p-24;
  }
}

}  // namespace athanor::bench
