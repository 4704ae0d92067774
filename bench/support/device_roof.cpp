#include "bench/support/device_roof.h"

#include <algorithm>
#include <map>

#include "bench/support/device_case.h"
#include "bench/support/device_time.h"
#include "kernels/cuda/context.h"
#include "kernels/matmul.h"

namespace athanor::bench {
namespace {

// A roof is what the device can do when nothing disturbs it: the best sample.
double fastest(Device device, const std::function<void(std::int64_t)>& run) {
  const std::vector<double> seconds = device_seconds(device, run);
  return *std::min_element(seconds.begin(), seconds.end());
}

double measure_copy(Device device, std::int64_t bytes) {
  const auto wanted = static_cast<std::int64_t>(device_info(device).memory_bytes / 16);
  if (bytes == 0) bytes = std::clamp(wanted, std::int64_t{256} << 20, std::int64_t{1} << 30);
  const Tensor from = pattern({bytes / 4}, DType::f32).to(device), to = empty_like(from);
  const void* in = from.raw_data();
  void* out = to.raw_data();
  double best = fastest(device, [&](std::int64_t) { queue_driver_copy(device, in, out, bytes); });
  for (const int blocks : {8, 32, 1 << 16}) {
    best = std::min(best, fastest(device, [&](std::int64_t) { queue_copy(device, in, out, bytes, blocks); }));
  }
  return 2.0 * static_cast<double>(bytes) / best;
}

double measure_fma(Device device) {
  const std::int64_t blocks = 32 * std::int64_t{device_info(device).multiprocessors};
  const Tensor out = Tensor::empty({blocks * kFmaThreads}, {DType::f32, device});
  double flops = 0;
  const double best = fastest(device, [&](std::int64_t) {
    flops = queue_fma(device, out.data<float>(), static_cast<unsigned>(blocks));
  });
  return flops / best;
}

double measure_product(Device device, const std::string& name) {
  constexpr std::int64_t n = 8192;
  const DType dtype = name == "tf32" ? DType::f32 : dtype_named(name).value();
  const Tensor a = pattern({n, n}, dtype, -1, 1, 1).to(device),
               b = pattern({n, n}, dtype, -1, 1, 2).to(device);
  const Tensor y = empty_like(a);
  CudaContext& context = cuda_context(device);
  const Tf32 allowed(context, name == "tf32");
  const double best = fastest(device, [&](std::int64_t) {
    kernels::matmul(context, MatmulImpl::automatic, a, b, {}, Activation::none, y, Write::overwrite);
  });
  return 2.0 * n * n * n / best;
}

}  // namespace

Roof device_copy_roof(Device device, std::int64_t bytes) {
  static std::map<std::int64_t, double> measured;
  double& roof = measured[bytes];
  if (roof == 0) roof = measure_copy(device, bytes);
  return {roof, "copy"};
}

Roof device_flops_roof(Device device, const std::string& name) {
  static std::map<std::string, double> measured;
  double& roof = measured[name];
  if (roof == 0) roof = name == "FMA" ? measure_fma(device) : measure_product(device, name);
  return {roof, name == "FMA" ? name : name + " product"};
}

}  // namespace athanor::bench
