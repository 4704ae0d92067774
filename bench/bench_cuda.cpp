// Kernels on the GPU: bench_cuda [--benchmark_filter=REGEX] [--benchmark_out=FILE]. The emulator has nothing
// to time: scripts/kernel_lab.sh counts what kernels touch there.

#include <cstdio>

#include <benchmark/benchmark.h>

#include "bench/cuda/families.h"
#include "bench/support/device_case.h"
#include "bench/support/device_roof.h"

namespace athanor::bench {
namespace {

void add_all() {
  add_elementwise();
  add_copy();
  add_reduce();
  add_norm();
  add_softmax();
  add_loss();
  add_pool();
  add_dropout();
  add_augment();
  add_update();
  add_matmul();
  add_conv();
}

void describe_device() {
  const Device device = bench_device();
  const DeviceInfo& info = device_info(device);
  benchmark::AddCustomContext("device", info.name);
  benchmark::AddCustomContext("sm", std::to_string(info.sm()));
  benchmark::AddCustomContext("multiprocessors", std::to_string(info.multiprocessors));
  benchmark::AddCustomContext("l2_bytes", std::to_string(info.l2_bytes));
  benchmark::AddCustomContext("memory_bytes", std::to_string(info.memory_bytes));
  benchmark::AddCustomContext("copy_roof_gb_s",
                              fmt::format("{:.1f}", device_copy_roof(device).per_second * 1e-9));
  benchmark::AddCustomContext("fma_peak_gflop_s",
                              fmt::format("{:.0f}", device_flops_roof(device, "FMA").per_second * 1e-9));
}

int refuse(int code, const std::string& why) {
  std::fprintf(stderr, "bench_cuda: %s\n", why.c_str());
  return code;
}

int run(int argc, char** argv) {
  if (cuda_is_emulated())
    return refuse(
        2, "must run on a GPU, but this build emulates one on the CPU; configure with the cuda preset");
  if (cuda_device_count() == 0) return refuse(3, why_no_cuda());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  add_all();
  describe_device();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return failed_rows() > 0 ? 1 : 0;
}

}  // namespace
}  // namespace athanor::bench

int main(int argc, char** argv) {
  try {
    return athanor::bench::run(argc, argv);
  } catch (const std::exception& error) {
    return athanor::bench::refuse(3, error.what());
  }
}
