// All-reduce by every algorithm, and by MPI's own, in turns:
//
//     mpirun -n 4 bench_collective [--min-mib 1] [--max-mib 64] [--rounds 20] [--dtype f32|bf16]
//
// Times are those of the slowest rank. algbw is bytes of the buffer per second; busbw what each rank has to
// send at least, 2 (P - 1) / P of them. Every result is checked before it is timed: `wrong` elements, whose
// number makes the exit code 1. MPI_Allreduce is the blocking one, in place; native is MPI_Iallreduce, pushed
// by us.

#define OMPI_SKIP_MPICXX
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <mpi.h>

#include "bench/support/quantile.h"
#include "dist/collectives/communicator.h"
#include "dist/transports/mpi_transport.h"
#include "kernels/copy.h"
#include "kernels/cpu/context.h"
#include "tensor/base/error.h"

namespace athanor::bench {
namespace {

using Clock = std::chrono::steady_clock;
using dist::Algorithm;
using dist::Communicator;

struct Way {
  std::string name;
  std::function<void()> run;  // on the buffer
  std::vector<double> us;
  std::int64_t wrong = 0;
};

struct Job {
  dist::MpiTransport transport;
  Communicator control{transport};
  std::vector<std::unique_ptr<Communicator>> comms;

  Job() {
    const int world = transport.world_size();
    comms.push_back(
        std::make_unique<Communicator>(transport, dist::CommunicatorOptions{.algorithm = Algorithm::ring}));
    comms.push_back(std::make_unique<Communicator>(
        transport, dist::CommunicatorOptions{.algorithm = Algorithm::hierarchical,
                                             .node_size = world % 2 == 0 ? world / 2 : 1}));
    comms.push_back(std::make_unique<Communicator>(
        transport, dist::CommunicatorOptions{.algorithm = Algorithm::rank_order}));
    comms.push_back(
        std::make_unique<Communicator>(transport, dist::CommunicatorOptions{.algorithm = Algorithm::native}));
  }
  // The largest of all ranks' values.
  double largest(double mine) {
    const Tensor x = Tensor::zeros({1}, {DType::f64, kCpu});
    x.data<double>()[0] = mine;
    control.run(*control.all_reduce(x, kernels::Combine::max));
    return x.data<double>()[0];
  }
};

// Small whole numbers: any order of summation gives the same bits, in halves too.
float value_of(int rank, std::int64_t i) {
  return static_cast<float>((rank * 5 + i * 3) % 7);
}

std::int64_t count_wrong(const Tensor& x, int world) {
  std::int64_t wrong = 0;
  dispatch_floating(x.dtype(), "bench", [&]<class T>() {
    const T* values = x.data<T>();
    float expected[7] = {};
    for (int i = 0; i < 7; ++i) {
      for (int rank = 0; rank < world; ++rank) expected[i] += value_of(rank, i);
    }
    for (std::int64_t i = 0; i < x.numel(); ++i) wrong += static_cast<float>(values[i]) != expected[i % 7];
  });
  return wrong;
}

std::int64_t measure(Job& job, std::int64_t mib, int rounds, DType dtype, double& log_ratios) {
  const int world = job.transport.world_size(), rank = job.transport.rank();
  const std::int64_t bytes = mib << 20, n = bytes / static_cast<std::int64_t>(size_of(dtype));
  const Tensor x = Tensor::empty({n}, {dtype, kCpu}), first = Tensor::empty({n}, {dtype, kCpu});
  dispatch_floating(dtype, "bench", [&]<class T>() {
    for (std::int64_t i = 0; i < n; ++i) first.data<T>()[i] = T(value_of(rank, i));
  });

  std::vector<Way> ways;
  std::vector<std::unique_ptr<dist::Collective>> collectives;
  for (const auto& comm : job.comms) {
    collectives.push_back(comm->all_reduce(x));
    ways.push_back({name_of(comm->options().algorithm),
                    [&comm = *comm, &collective = *collectives.back()] { comm.run(collective); },
                    {}});
  }
  if (dtype == DType::f32) {
    ways.push_back({"MPI_Allreduce",
                    [&] {
                      MPI_Allreduce(MPI_IN_PLACE, x.raw_data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM,
                                    MPI_COMM_WORLD);
                    },
                    {}});
  }
  const auto barrier = job.control.barrier();
  for (Way& way : ways) {
    x.copy_bytes_from(first);
    way.run();
    way.wrong = static_cast<std::int64_t>(job.largest(static_cast<double>(count_wrong(x, world))));
  }
  // Zeros stay zeros, however often they are added up.
  kernels::fill(cpu_context(), x, 0);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      Way& way = ways[(i + static_cast<std::size_t>(round)) % ways.size()];
      job.control.run(*barrier);
      const auto began = Clock::now();
      way.run();
      const std::chrono::duration<double, std::micro> took = Clock::now() - began;
      way.us.push_back(job.largest(took.count()));
    }
  }
  std::int64_t wrong = 0;
  const double reference = quantile(ways.back().us, 0.5);
  for (const Way& way : ways) {
    wrong += way.wrong;
    const double us = quantile(way.us, 0.5), gb_per_s = static_cast<double>(bytes) / us / 1000;
    if (way.name == "ring") log_ratios += std::log(us / reference);
    if (rank != 0) continue;
    std::printf("| %lld | %s | %s | %.0f | %.0f .. %.0f | %.2f | %.2f | %.2f | %lld |\n",
                static_cast<long long>(mib), name_of(dtype).data(), way.name.c_str(), us,
                quantile(way.us, 0.1), quantile(way.us, 0.9), gb_per_s, gb_per_s * 2 * (world - 1) / world,
                us / reference, static_cast<long long>(way.wrong));
  }
  return wrong;
}

int run(int argc, char** argv) {
  CLI::App app{"all-reduce with every algorithm, and MPI's own; run with mpirun"};
  std::int64_t least = 1, most = 64;
  int rounds = 20;
  std::string dtype_name = "f32";
  app.add_option("--min-mib", least, "smallest buffer, in MiB")->check(CLI::PositiveNumber);
  app.add_option("--max-mib", most, "largest buffer, in MiB")->check(CLI::PositiveNumber);
  app.add_option("--rounds", rounds, "rounds of each algorithm, in turns")->check(CLI::PositiveNumber);
  app.add_option("--dtype", dtype_name, "f32 or bf16")->check(CLI::IsMember({"f32", "bf16"}));
  CLI11_PARSE(app, argc, argv);
  Job job;
  cpu_context().set_threads(1);  // a core per rank, where there are as many
  const DType dtype = dtype_name == "f32" ? DType::f32 : DType::bf16;
  if (job.transport.rank() == 0) {
    std::printf("all_reduce, %d ranks, %d rounds; ratio to %s\n\n", job.transport.world_size(), rounds,
                dtype == DType::f32 ? "MPI_Allreduce" : "native");
    std::printf("| MiB | dtype | way | median us | p10 .. p90 | algbw GB/s | busbw GB/s | ratio | wrong |\n");
    std::printf("|---|---|---|---|---|---|---|---|---|\n");
  }
  std::int64_t wrong = 0, sizes = 0;
  double log_ratios = 0;
  for (std::int64_t mib = least; mib <= most; mib *= 2, ++sizes)
    wrong += measure(job, mib, rounds, dtype, log_ratios);
  if (job.transport.rank() == 0)
    std::printf("\nring takes %.2f times as long, in geometric mean over %lld sizes\n",
                std::exp(log_ratios / static_cast<double>(std::max<std::int64_t>(1, sizes))),
                static_cast<long long>(sizes));
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace athanor::bench

int main(int argc, char** argv) {
  try {
    return athanor::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_collective: %s\n", error.what());
    return 3;
  }
}
