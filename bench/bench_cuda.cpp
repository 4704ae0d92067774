// Kernels on the GPU: bench_cuda [--benchmark_filter=REGEX] [--benchmark_out=FILE]. With the emulator instead
// of a GPU there are no times: bench_cuda --counters prints what each line of a kernel touches.

#include <cstdio>
#include <cstring>

#include <benchmark/benchmark.h>

#include "bench/cuda/counters.h"
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

// Removes the flag where it is given.
bool take_flag(int& argc, char** argv, const char* name) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], name) != 0) continue;
    std::memmove(argv + i, argv + i + 1, sizeof(char*) * static_cast<std::size_t>(argc - i));
    --argc;
    return true;
  }
  return false;
}

int refuse(int code, const std::string& why) {
  std::fprintf(stderr, "bench_cuda: %s\n", why.c_str());
  return code;
}

int run(int argc, char** argv) {
  const bool counters = take_flag(argc, argv, "--counters");
  if (counters && !cuda_is_emulated())
    return refuse(2, "--counters: only the emulator counts; use the simt preset");
  if (!counters && cuda_is_emulated())
    return refuse(2, "emulated on the CPU: correct, not fast; there is nothing to time, but see --counters");
  if (cuda_device_count() == 0) return refuse(3, why_no_cuda());
  if (counters) {
    add_all();
    return print_counters(argc, argv);
  }
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
