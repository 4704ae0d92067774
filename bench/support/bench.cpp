#include "bench/support/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include <benchmark/benchmark.h>
#include <fmt/ranges.h>

#include "bench/support/roof.h"
#include "kernels/copy.h"

namespace athanor::bench {
namespace {

struct Case {
  Id id;
  Work work;
  std::function<Prepared()> prepare;
};

// The prepared case lives until another one takes its turn: Google Benchmark calls a function several times.
const Case* current_case = nullptr;
Prepared current;

double seconds_of(const std::function<void()>& run, std::int64_t times) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < times; ++i) run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double quantile(std::vector<double>& samples, double q) {
  const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(samples.size() - 1) + 0.5);
  std::nth_element(samples.begin(), samples.begin() + at, samples.end());
  return samples[static_cast<std::size_t>(at)];
}

void report(benchmark::State& state, const Case& row, std::vector<double>& samples) {
  const double median = quantile(samples, 0.5);
  state.counters["median_us"] = median * 1e6;
  state.counters["p10_us"] = quantile(samples, 0.1) * 1e6;
  state.counters["p90_us"] = quantile(samples, 0.9) * 1e6;
  state.counters["max_err"] = current.max_error;
  double roof = 0;
  if (row.work.bytes > 0) {
    state.counters["GB/s"] = row.work.bytes / median * 1e-9;
    roof = std::max(roof, row.work.bytes / median / copy_roof(row.work.bytes));
  }
  if (row.work.flops > 0) {
    state.counters["GFLOP/s"] = row.work.flops / median * 1e-9;
    roof = std::max(roof, row.work.flops / median / fma_peak());
  }
  if (roof > 0) state.counters["roof_%"] = 100 * roof;
}

void run_case(benchmark::State& state, const Case& row) {
  if (std::exchange(current_case, &row) != &row) {
    current = Prepared();
    current = row.prepare();
  }
  if (!(current.max_error <= current.tolerance)) {
    state.SkipWithError(
        fmt::format("max error {:.3g}, but at most {:.3g} is allowed", current.max_error, current.tolerance)
            .c_str());
    return;
  }
  seconds_of(current.run, 1);  // warm-up: caches, primitives, the allocator
  std::int64_t batch = 1;      // a sample must be long against the clock's own cost
  while (seconds_of(current.run, batch) < 5e-6) batch *= 2;
  std::vector<double> samples;
  while (state.KeepRunningBatch(batch))
    samples.push_back(seconds_of(current.run, batch) / static_cast<double>(batch));
  report(state, row, samples);
}

}  // namespace

std::string Id::str() const {
  return fmt::format("{}/{}/{}/{}/{}/{}", op, dir, dtype, device.str(), shape, impl);
}

void add(const Id& id, const Work& work, std::function<Prepared()> prepare) {
  const auto row = std::make_shared<const Case>(Case{id, work, std::move(prepare)});
  benchmark::RegisterBenchmark(id.str().c_str(), [row](benchmark::State& state) {
    run_case(state, *row);
  })->Unit(benchmark::kMicrosecond);
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
            "max_error: both must have as many elements, but got {} and {}", got.numel(), expected.size());
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
