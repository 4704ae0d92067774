// How long collectives, and training steps around them, take on many ranks: the library's own collectives and
// buckets, with gradients of the right size and nothing in them, and a processor that is only said to be
// busy.
//
//     scale_time all_reduce --algorithm ring --mib 1 --mib 16
//     scale_time step --algorithm hierarchical --node-size 8 --bucket-mib 25 --strategy ddp --strategy zero1
//
// Run by smpirun or mpirun; scripts/simulate_scale.sh makes the tables. One line for each case,
// tab-separated, rank 0.
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench/scale/machine.h"
#include "bench/scale/step.h"
#include "dist/transports/mpi_transport.h"
#include "kernels/cpu/context.h"

namespace {

using namespace athanor;
using dist::Algorithm;

struct Options {
  std::string what;
  Algorithm algorithm = Algorithm::ring;
  int node_size = 1;
  std::vector<double> mib{1};
  std::vector<double> bucket_mib{25};
  std::vector<std::string> strategies{"ddp"};
  std::string overlap = "pumped";
  scale::StepCosts costs;
};

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app("Times of collectives and training steps on many ranks");
  const std::map<std::string, Algorithm> algorithms{{"ring", Algorithm::ring},
                                                    {"hierarchical", Algorithm::hierarchical},
                                                    {"rank_order", Algorithm::rank_order}};
  app.add_option("what", options.what, "all_reduce or step")
      ->required()
      ->check(CLI::IsMember({"all_reduce", "step"}));
  app.add_option("--algorithm", options.algorithm)->transform(CLI::CheckedTransformer(algorithms));
  app.add_option("--node-size", options.node_size, "ranks per node, for hierarchical");
  app.add_option("--mib", options.mib, "all_reduce: buffer sizes, in MiB");
  app.add_option("--bucket-mib", options.bucket_mib, "step: bucket sizes, in MiB");
  app.add_option("--strategy", options.strategies, "step: ddp, zero1")
      ->check(CLI::IsMember({"ddp", "zero1"}));
  app.add_option("--overlap", options.overlap, "step: none, pumped")
      ->check(CLI::IsMember({"none", "pumped"}));
  app.add_option("--samples", options.costs.samples_per_rank, "step: samples per rank");
  double tflops = options.costs.flops_per_second * 1e-12;
  app.add_option("--tflops", tflops, "step: sustained TFLOP/s of a rank");
  double agreement_us = 0;
  app.add_option("--agreement-us", agreement_us,
                 "step: time of the agreement, to simulate it instead of running it");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  options.costs.flops_per_second = tflops * 1e12;
  options.costs.agreement = agreement_us * 1e-6;
  return options;
}

void time_all_reduce(dist::Communicator& comm, const Options& options) {
  for (const double mib : options.mib) {
    const auto count = static_cast<std::int64_t>(std::llround(mib * (1 << 20) / sizeof(float)));
    const auto all_reduce = comm.all_reduce(scale::shared_by_ranks(count, static_cast<int>(mib * 1024)));
    const double seconds = scale::time_alike([&] { comm.run(*all_reduce); });
    if (comm.rank() == 0) {
      fmt::print("all_reduce\t{}\t{}\t{}\t{:.3f}\n", comm.world_size(), name_of(options.algorithm), mib,
                 seconds * 1e6);
    }
  }
}

void time_steps(dist::Communicator& comm, const Options& options) {
  for (const double mib : options.bucket_mib) {
    for (const std::string& strategy : options.strategies) {
      scale::StepOptions step{.costs = options.costs, .zero1 = strategy == "zero1"};
      step.bucket_bytes = static_cast<std::int64_t>(mib * (1 << 20));
      step.overlap = options.overlap == "none" ? dist::Overlap::none : dist::Overlap::pumped;
      const scale::StepTimes times = scale::time_step(comm, step);
      if (comm.rank() != 0) continue;
      std::string buckets;
      for (const auto& bucket : times.buckets)
        buckets +=
            fmt::format("{}{}@{:.4f}", buckets.empty() ? "" : ",", bucket.bytes, bucket.complete * 1e3);
      fmt::print("step\t{}\t{}\t{}\t{}\t{}\t{}\t{:.4f}\t{:.4f}\t{:.4f}\n", comm.world_size(),
                 name_of(options.algorithm), strategy, options.overlap, mib, buckets, times.alone * 1e3,
                 times.step * 1e3, times.exposed * 1e3);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  cpu_context().set_threads(1);
  dist::MpiTransport transport({.wait_inside = scale::simulated()});
  try {
    dist::Communicator comm(transport, {.algorithm = options.algorithm, .node_size = options.node_size});
    if (options.what == "all_reduce") {
      time_all_reduce(comm, options);
    } else {
      time_steps(comm, options);
    }
    std::fflush(stdout);
    return 0;
  } catch (const std::exception& error) {  // while the transport lives, which would end all ranks in silence
    scale::fail("scale_time", transport.rank(), error.what());
  }
}
