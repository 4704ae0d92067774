#include <cstdlib>
#include <string>

#include <benchmark/benchmark.h>

#include "bench/support/bench.h"
#include "bench/support/roof.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/isa.h"

// Google Benchmark's own flags do the rest: --benchmark_filter=REGEX, --benchmark_out=FILE (JSON),
// --benchmark_min_time=SECONDS. Ends with 1 where the filter matches nothing: a name that has changed must
// not pass for one that was measured. `--worker [PLANTED_SLOWDOWN]` alone times rows for scripts/bench.sh.
int main(int argc, char** argv) {
  using namespace athanor;
  if (argc > 1 && std::string(argv[1]) == "--worker") {
    bench::register_all();
    const std::string program = argv[0];
    return bench::serve_rows(program.substr(program.rfind('/') + 1),
                             {.planted_slowdown = argc > 2 ? std::atof(argv[2]) : 0.0});
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  bench::register_all();
  benchmark::AddCustomContext("threads", std::to_string(cpu_context().threads()));
  benchmark::AddCustomContext("isa", cpu::has_avx512() ? "x86-64-v4" : "baseline");
  benchmark::AddCustomContext("copy_roof_gb_s", fmt::format("{:.1f}", bench::copy_roof(1 << 28) * 1e-9));
  benchmark::AddCustomContext("fma_peak_gflop_s", fmt::format("{:.0f}", bench::fma_peak() * 1e-9));
  const std::size_t matched = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return matched > 0 ? 0 : 1;
}
