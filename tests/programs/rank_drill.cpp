// Ranks that train a small network together, until one of them fails. rank_drill.sh runs it under mpirun and
// looks at how the job ends.
//
//     rank_drill DRILL CULPRIT FOLDER TIMEOUT_MS [ALGORITHM]
//
// Each process has a parent that keeps its exit code in FOLDER/code.<rank>, and ends as it did.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/reduce.h"
#include "dist/ddp.h"
#include "dist/transports/mpi_transport.h"
#include "dist/watch/watchdog.h"
#include "nn/activation.h"
#include "nn/linear.h"
#include "nn/sequential.h"
#include "optim/sgd.h"
#include "optim/step.h"
#include "tensor/error.h"
#include "tests/support/overflow.h"

namespace {

using namespace athanor;

constexpr int kSteps = 400, kFails = 20;

/// For rank_drill.sh: when it happened, and what of this process must not be left behind.
void leave_word(const std::string& folder, int rank) {
  std::ofstream word(folder + "/word." + std::to_string(rank));
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (const auto at = line.find("/dev/shm/"); at != std::string::npos) word << line.substr(at) << '\n';
  }
}

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
  leave_word(folder, comm.rank());
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

void run(int argc, char** argv) {
  ATH_CHECK(argc >= 5, "rank_drill: needs DRILL CULPRIT FOLDER TIMEOUT_MS, but got {} arguments", argc - 1);
  const std::string drill = argv[1], folder = argv[3];
  const bool ring = argc > 5 && std::string(argv[5]) == "ring";
  dist::MpiTransport transport;
  cpu_context().set_threads(1);
  dist::Communicator comm(transport, {.algorithm = ring ? dist::Algorithm::ring : dist::Algorithm::rank_order,
                                      .timeout = std::chrono::milliseconds(std::atoi(argv[4])),
                                      .compare_calls = drill == "desync"});
  dist::Watchdog watchdog(transport, {.folder = folder});
  try {
    train(comm, drill, comm.rank() == std::atoi(argv[2]), folder);
    comm.run(*comm.barrier());  // what comes after it waits without a deadline
  } catch (const std::exception& error) {
    watchdog.end(2, error.what());
  }
}

void keep_exit_code(pid_t child, const std::string& folder) {
  // mpirun signals both.
  for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, [](int) {});
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  std::ofstream(folder + "/code." + (rank ? rank : "?"))
      << (WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)) << '\n';
  if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
  std::signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
}

}  // namespace

int main(int argc, char** argv) {
  if (const pid_t child = argc > 3 ? fork() : 0) keep_exit_code(child, argv[3]);
  run(argc, argv);
}
