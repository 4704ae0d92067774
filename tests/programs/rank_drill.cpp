// Ranks that train a small network together, until one of them fails. rank_drill.sh looks at how the job
// ends.
//
//     rank_drill DRILL CULPRIT FOLDER TIMEOUT_MS [ALGORITHM]
//
// Under mpirun it is one of its ranks; by itself it starts four, as --devices does.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include <unistd.h>

#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/reduce.h"
#include "dist/ddp.h"
#include "dist/launch/launcher.h"
#include "dist/transports/make_transport.h"
#include "dist/watch/watchdog.h"
#include "kernels/cpu/context.h"
#include "nn/activation.h"
#include "nn/linear.h"
#include "nn/sequential.h"
#include "optim/sgd.h"
#include "optim/step.h"
#include "tensor/base/error.h"
#include "tests/support/overflow.h"

namespace {

using namespace athanor;

constexpr int kSteps = 400, kFails = 20;

void fail(const std::string& drill, const std::string& folder) {
  std::ofstream(folder + "/failed") << '\n';
  if (drill == "kill") raise(SIGKILL);
  if (drill == "stop") raise(SIGSTOP);
  if (drill == "exit") _exit(0);
  if (drill == "crash") raise(SIGSEGV);
  if (drill == "overflow") test::overflow_the_stack();
  if (drill == "throw") throw std::runtime_error("the drill's own error");
  if (drill == "hang") {
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

void train(dist::Communicator& comm, const std::string& drill, bool culprit, const std::string& folder) {
  nn::Sequential net;
  net.add<nn::Linear>(64, culprit && drill == "models" ? 48 : 32).add<nn::Relu>();
  net.add<nn::Linear>(culprit && drill == "models" ? 48 : 32, 10);
  net.initialize(1);
  ParameterArena arena(
      net.parameters(), net.buffers(),
      dist::bucketed({}, comm.world_size(), {.bucket_bytes = 4096, .first_bucket_bytes = 1024}));
  dist::Ddp ddp(arena, comm);
  Sgd sgd(arena, {});
  StepBuffer step(kCpu, {.seed = 1});
  std::ofstream(folder + "/trains." + std::to_string(comm.rank())) << '\n';
  const int steps = culprit && (drill == "steps" || drill == "desync") ? kFails : kSteps;
  for (int i = 0; i < steps; ++i) {
    if (culprit && i == kFails) fail(drill, folder);
    arena.zero_grad();
    backward_scaled(sum(square(net(full({4, 64}, 0.01 * (comm.rank() + 1))))), step);
    ddp.reduce(step, {});
    sgd.set_learning_rates(step, schedules::constant(1e-4f));
    sgd.step(step);
    finish_step(step);
    if (drill == "signal") std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (steps < kSteps) std::ofstream(folder + "/failed") << '\n';
}

void run(const dist::RankInfo& info, int argc, char** argv) {
  ATH_CHECK(argc >= 5, "rank_drill: needs DRILL CULPRIT FOLDER TIMEOUT_MS, but got {} arguments", argc - 1);
  const std::string drill = argv[1], folder = argv[3];
  const bool ring = argc > 5 && std::string(argv[5]) == "ring";
  dist::ProcessGroup job{.info = info};
  dist::networks().join(job, kCpu);
  dist::Transport& transport = *job.transport;
  cpu_context().set_threads(1);
  dist::Communicator comm(transport, {.algorithm = ring ? dist::Algorithm::ring : dist::Algorithm::rank_order,
                                      .timeout = std::chrono::milliseconds(std::atoi(argv[4])),
                                      .compare_calls = drill == "desync"});
  dist::Watchdog watchdog(transport, {.folder = folder, .limit = std::chrono::seconds(60)});
  try {
    train(comm, drill, comm.rank() == std::atoi(argv[2]), folder);
    comm.run(*comm.barrier());  // what comes after it waits without a deadline
  } catch (const std::exception& error) {
    watchdog.end(2, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const dist::RankInfo info = dist::find_rank_info();
  if (info.launcher == dist::Launcher::none)
    return dist::launch({.ranks = 4, .arguments = {argv + 1, argv + argc}});
  run(info, argc, argv);
}
