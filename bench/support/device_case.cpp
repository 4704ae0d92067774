#include "bench/support/device_case.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "bench/support/device_roof.h"
#include "bench/support/device_time.h"
#include "kernels/copy.h"
#include "kernels/cuda/vendor.h"
#include "kernels/on_device.h"
#if defined(ATHANOR_SIMT)
#include "simt/emulator/counters.h"
#endif

namespace athanor::bench {
namespace {

int failures = 0;
std::int64_t row_bytes = 0;  // 0: the default

Tensor flat_view(const Tensor& dense, std::int64_t first, std::int64_t count) {
  return dense.view_as_strided({count}, {1}, first);
}

Tensor clone(const Tensor& x) {
  const Tensor copy = empty_like(x);
  copy.copy_bytes_from(x);
  return copy;
}

Shape grown(Shape shape, std::int64_t tiles) {
  if (shape.rank() > 0) shape[0] *= tiles;
  return shape;
}

// `tiles` copies of a dense tensor on the device, one after the other.
Tensor repeated(const Tensor& small, std::int64_t tiles) {
  const Device device = bench_device();
  const Tensor on = small.to(device);
  if (tiles == 1) return on;
  const std::int64_t n = small.numel();
  const Tensor large = Tensor::empty(grown(small.shape(), tiles), on.options());
  kernels::copy(cuda_context(device), on.view_as_strided({1, n}, {n, 1}, 0),
                large.view_as_strided({tiles, n}, {n, 1}, 0));
  return large;
}

bool grows(Role role) {
  return role == Role::rows || role == Role::row_result || role == Role::first_result;
}

// Largest difference to `factor` times the expected, over the largest magnitude expected.
double difference(const Tensor& got, const Tensor& expected, double factor) {
  const std::vector<double> a = got.to_vector(), b = expected.to_vector();
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double want = factor * b[i];
    if (std::isfinite(want)) scale = std::max(scale, std::abs(want));
    if (a[i] == want || (std::isnan(a[i]) && std::isnan(want))) continue;
    if (!std::isfinite(a[i]) || !std::isfinite(want)) return NAN;
    worst = std::max(worst, std::abs(a[i] - want));
  }
  return worst == 0 ? 0 : worst / scale;
}

double worst_of(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
}

// The error of a result that grew, at its two ends.
double error_of(Role role, const Tensor& got, const Tensor& expected, std::int64_t tiles) {
  const std::int64_t n = expected.numel();
  const auto part = [&](std::int64_t first) {
    return difference(flat_view(got, first, n).to(kCpu), expected, 1);
  };
  switch (role) {
    case Role::rows:
    case Role::whole: return 0;
    case Role::row_result: return worst_of(part(0), part((tiles - 1) * n));
    case Role::first_result:
    case Role::same_result: return part(0);
    case Role::sum_result: return difference(got.to(kCpu), expected, static_cast<double>(tiles));
    case Role::small_result: return tiles == 1 ? part(0) : 0;
  }
  return NAN;
}

std::vector<Tensor> results_on_cpu(const Call& call) {
  std::vector<Tensor> tensors;
  for (const Operand& operand : call.operands) tensors.push_back(clone(operand.value));
  call.on_cpu(cpu_context(), tensors);
  return tensors;
}

double error_of(const Call& call, const std::vector<Tensor>& expected, const std::vector<Tensor>& got,
                std::int64_t tiles) {
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst = worst_of(worst, error_of(call.operands[i].role, got[i], expected[i], tiles));
  return worst;
}

std::string id_of(const DeviceCase& row) {
  const std::string shape = row.name.empty() ? shape_name(grown(row.shape, row.tiles)) : row.name;
  return Id{row.op, row.dir, row.dtype, shape, row.impl, bench_device()}.str();
}

#if defined(ATHANOR_SIMT)
// There is no time to take on the emulator. What the lines of the kernels touch is printed instead.
void check_and_measure(benchmark::State& state, const DeviceCase& row) {
  const Call call = row.prepare();
  const std::vector<Tensor> operands = on_bench_device(call, 1);
  simt::start_counting();
  call.on_device(cuda_context(bench_device()), operands);
  synchronize(bench_device());
  const simt::Counts counts = simt::stop_counting();
  std::printf("%s\n%s\n", id_of(row).c_str(), simt::table(counts).c_str());
  const double error = error_on_device(call, operands);
  ATH_CHECK(error <= call.tolerance, "max error {:.3g}, but at most {:.3g} is allowed", error,
            call.tolerance);
  state.SetIterationTime(1);  // the library asks for one
}
#else
// As many sets of operands as it takes for a call to find nothing of the one before in the cache.
std::size_t sets_for(const std::vector<Tensor>& operands) {
  double bytes = 1;
  for (const Tensor& t : operands) bytes += static_cast<double>(t.bytes());
  const double wanted = 2 * static_cast<double>(device_info(bench_device()).l2_bytes);
  return static_cast<std::size_t>(std::clamp(std::ceil(wanted / bytes), 1.0, 64.0));
}

// While alive, the vendor's guess will do: the small case is not worth measuring all candidates.
class Untuned {
 public:
  explicit Untuned(CudaContext& context) : vendor_(context.vendor()), saved_(vendor_.options()) {
    cuda::VendorOptions options = saved_;
    options.autotune = false;
    vendor_.set_options(options);
  }
  ~Untuned() { vendor_.set_options(saved_); }
  Untuned(const Untuned&) = delete;
  Untuned& operator=(const Untuned&) = delete;

 private:
  cuda::Vendor& vendor_;
  cuda::VendorOptions saved_;
};

void check_and_measure(benchmark::State& state, const DeviceCase& row) {
  const Call call = row.prepare();
  CudaContext& context = cuda_context(bench_device());
  const VendorStats& vendor = context.vendor().stats();
  const std::int64_t refused = vendor.refused + vendor.fallbacks;
  std::string note;
  const VendorNotes notes(bench_device(), [&](const std::string& line) { note = line; });
  const std::vector<Tensor> expected = results_on_cpu(call);
  double error = 0;
  if (row.tiles > 1) {
    const Untuned guard(context);
    const std::vector<Tensor> small = on_bench_device(call, 1);
    call.on_device(context, small);
    error = error_of(call, expected, small, 1);
  }
  std::vector<std::vector<Tensor> > sets = {on_bench_device(call, row.tiles)};
  call.on_device(context, sets[0]);
  error = worst_of(error, error_of(call, expected, sets[0], row.tiles));
  ATH_CHECK(error <= call.tolerance, "max error {:.3g}, but at most {:.3g} is allowed", error,
            call.tolerance);
  while (sets.size() < sets_for(sets[0])) sets.push_back(on_bench_device(call, row.tiles));

  std::vector<double> seconds = device_seconds(bench_device(), [&](std::int64_t i) {
    call.on_device(context, sets[static_cast<std::size_t>(i) % sets.size()]);
  });
  ATH_CHECK(vendor.refused + vendor.fallbacks == refused, "{}", note);
  const auto tiles = static_cast<double>(row.tiles);
  const Work work{row.work.bytes * tiles, row.work.flops * tiles};
  const Roofs roofs{device_copy_roof(bench_device(), row_bytes), device_flops_roof(bench_device(), row.peak)};
  report(state, work, roofs, seconds, error);
  state.SetIterationTime(state.counters["median_us"].value * 1e-6);
}
#endif

void run_row(benchmark::State& state, const DeviceCase& row) {
  for ([[maybe_unused]] auto _ : state) {
    try {
      check_and_measure(state, row);
    } catch (const std::exception& error) {
      ++failures;
      state.SkipWithError(error.what());
      break;
    }
  }
}

}  // namespace

Operand result(Role role, const Shape& shape, DType dtype) {
  const Tensor value = Tensor::empty(shape, {dtype, kCpu});
  std::memset(value.raw_data(), 0xff, value.bytes());
  return {value, role};
}

void add(DeviceCase row) {
  const std::string id = id_of(row);
  benchmark::RegisterBenchmark(id.c_str(),
                               [row = std::move(row)](benchmark::State& state) { run_row(state, row); })
      ->Unit(benchmark::kMicrosecond)
      ->Iterations(1)
      ->UseManualTime();
}

Device bench_device() {
  return {DeviceType::cuda, 0};
}
int failed_rows() {
  return failures;
}

std::vector<DType> bench_dtypes() {
  if (device_info(bench_device()).sm() < 80) return {DType::f32, DType::f16};
  return {DType::f32, DType::f16, DType::bf16};
}

double bytes_of(const Shape& shape, DType dtype) {
  return static_cast<double>(shape.numel()) * static_cast<double>(size_of(dtype));
}

void set_row_bytes(std::int64_t bytes) {
  row_bytes = bytes;
}

std::int64_t tiles_for(const Shape& shape, DType dtype) {
  if (cuda_is_emulated()) return 1;  // its times mean nothing
  const double bytes = row_bytes > 0 ? static_cast<double>(row_bytes) : 64 << 20;
  return static_cast<std::int64_t>(std::ceil(bytes / bytes_of(shape, dtype)));
}

Tensor pattern(const Shape& shape, DType dtype, double low, double high, std::uint64_t seed) {
  constexpr std::int64_t kPeriod = 1'000'003;  // a prime: rows of no matrix are alike
  const std::int64_t n = shape.numel();
  if (n <= kPeriod) return filled(shape, dtype, low, high, seed);
  const Tensor values = filled({kPeriod}, dtype, low, high, seed), all = Tensor::empty(shape, {dtype, kCpu});
  const auto bytes = static_cast<std::int64_t>(all.bytes());
  for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(values.bytes())) {
    const auto count = std::min(bytes - at, static_cast<std::int64_t>(values.bytes()));
    std::memcpy(all.raw_data() + at, values.raw_data(), static_cast<std::size_t>(count));
  }
  return all;
}

std::vector<Tensor> on_bench_device(const Call& call, std::int64_t tiles) {
  std::vector<Tensor> tensors;
  for (const Operand& operand : call.operands) {
    tensors.push_back(operand.grow ? operand.grow(tiles).to(bench_device())
                                   : repeated(operand.value, grows(operand.role) ? tiles : 1));
  }
  return tensors;
}

double error_on_device(const Call& call, const std::vector<Tensor>& operands, std::int64_t tiles) {
  return error_of(call, results_on_cpu(call), operands, tiles);
}

}  // namespace athanor::bench
