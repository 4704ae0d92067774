// Kernels on the GPU: bench_cuda [--mib=N] [--benchmark_filter=REGEX] [--benchmark_out=FILE]. --mib: tensors
// of memory-bound rows, and the copy that is their roof, have so many MiB (by default 64). The emulator has
// nothing to time: there bench_cuda --counters [--benchmark_filter=REGEX] prints what each line of a kernel
// touches.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <benchmark/benchmark.h>

#include "bench/cuda/families.h"
#include "bench/support/device_case.h"
#include "bench/support/device_roof.h"
#include "tensor/base/error.h"
#if defined(ATHANOR_SIMT)
#include "simt/emulator/counters.h"
#endif

namespace athanor::bench {
namespace {

void add_all() {
  add_elementwise();
  add_copy();
  add_reduce();
  add_resize();
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

int refuse(int code, const std::string& why) {
  std::fprintf(stderr, "bench_cuda: %s\n", why.c_str());
  return code;
}

// Removes the flag where it is given.
bool take_flag(int& argc, char** argv, const char* name) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], name) != 0) continue;
    std::copy(argv + i + 1, argv + argc, argv + i);
    --argc;
    return true;
  }
  return false;
}

// Removes --mib=N and heeds it.
void take_mib(int& argc, char** argv) {
  constexpr std::string_view kName = "--mib=";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (!argument.starts_with(kName)) continue;
    const std::int64_t mib = std::atoll(argument.c_str() + kName.size());
    ATH_CHECK(mib >= 1 && mib <= 16384, "--mib: must be in [1, 16384], but got '{}'",
              argument.substr(kName.size()));
    set_row_bytes(mib << 20);
    take_flag(argc, argv, argument.c_str());
    return;
  }
}

#if defined(ATHANOR_SIMT)
// The rows print their counts themselves; what is left are their errors.
class Errors final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.error_occurred)
        std::fprintf(stderr, "%s: %s\n", run.benchmark_name().c_str(), run.error_message.c_str());
    }
  }
};

int run(int argc, char** argv) {
  if (!take_flag(argc, argv, "--counters"))
    return refuse(2, "emulated on the CPU: correct, not fast, so there is nothing to time; see --counters");
  if (!simt::can_count())
    return refuse(
        2,
        "--counters: this build's kernels do not report their memory accesses; build the simt-race preset");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  add_all();
  Errors errors;
  const std::size_t rows = benchmark::RunSpecifiedBenchmarks(&errors);
  benchmark::Shutdown();
  if (rows == 0)
    return refuse(2, "--benchmark_filter: matches no row; --benchmark_list_tests lists all rows");
  return failed_rows() > 0 ? 1 : 0;
}
#else
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

int run(int argc, char** argv) {
  if (take_flag(argc, argv, "--counters"))
    return refuse(2, "--counters: only the emulator counts; build the simt-race preset");
  if (cuda_device_count() == 0) return refuse(3, why_no_cuda());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  add_all();
  describe_device();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return failed_rows() > 0 ? 1 : 0;
}
#endif

}  // namespace
}  // namespace athanor::bench

int main(int argc, char** argv) {
  try {
    athanor::bench::take_mib(argc, argv);
    return athanor::bench::run(argc, argv);
  } catch (const athanor::ArgumentError& error) {
    return athanor::bench::refuse(2, error.what());
  } catch (const std::exception& error) {
    return athanor::bench::refuse(3, error.what());
  }
}
