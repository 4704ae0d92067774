#include "trainer/run_on_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "dist/launcher.h"
#include "dist/watchdog.h"
#include "tensor/error.h"
#include "tensor/stream.h"
#include "trainer/run_main.h"

namespace athanor {
namespace {

int start_ranks(const TrainerConfig& config, int ranks, char** argv, const dist::Networks& networks) {
  std::vector<std::string> arguments;
  for (char** at = argv + 1; *at; ++at) arguments.emplace_back(*at);
  if (config.device.is_cuda() && networks.nccl) {
    ATH_CHECK(config.device.index == 0, "--device {}: must be without a number where --devices is {}",
              config.device.str(), ranks);
    ATH_CHECK(ranks <= cuda_device_count(), "--devices: must be at most {}, one process per GPU, but is {}",
              cuda_device_count(), ranks);
    return dist::run_processes(dist::one_per_gpu(ranks, arguments));
  }
  if (!networks.mpi) {
    detail::fail<BackendError>(
        "--devices {}: ranks talk through MPI, which this build was made without; install "
        "libopenmpi-dev and openmpi-bin, and configure again",
        ranks);
  }
  return dist::run_processes({dist::with_mpirun(ranks, arguments)});
}

/// What --devices says of ranks that others have started.
void check_devices(const TrainerConfig& config, const dist::Place& place) {
  ATH_CHECK(
      config.devices <= 0 || config.devices == place.local_size,
      "--devices {}: must be the number of ranks that {} has started on this machine, {}; or leave it out",
      config.devices, name_of(place.launcher), place.local_size);
}

/// Where records of a rank that cannot go on are written: the run's folder, or where the user is.
std::filesystem::path flight_folder(const TrainerConfig& config) {
  const std::filesystem::path wanted = config.flight_dir.empty() ? config.checkpoint_dir : config.flight_dir;
  if (wanted.empty()) return ::access(".", W_OK) == 0 ? "." : "";
  std::error_code error;
  std::filesystem::create_directories(wanted, error);
  return wanted;
}

int run_rank(dist::Job& job, const TrainerConfig& config, const std::function<int(dist::Transport*)>& body) {
  dist::Watchdog watchdog(*job.transport,
                          {.folder = flight_folder(config), .agreement = std::chrono::milliseconds(500)});
  try {
    return body(job.transport.get());
  } catch (...) {
    const Failure failure = describe_failure();
    watchdog.stand_down(failure.exit_code, failure.line);
    // Often all fail at the same: then rank 0 says so, and the others are gone before they do.
    if (job.place.rank > 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::fflush(stdout);
    std::fprintf(stderr, "rank %d: error: %s\n", job.place.rank, failure.line.c_str());
    std::fflush(stderr);
    job.abort(failure.exit_code);
    std::_Exit(failure.exit_code);
  }
}

}  // namespace

int run_on_ranks(TrainerConfig& config, char** argv, const dist::Networks& networks,
                 const std::function<int(dist::Transport*)>& body) {
  const dist::Place place = dist::find_place();
  if (place.launcher == dist::Launcher::none) {
    const int all = config.device.is_cuda() ? cuda_device_count() : 1;
    const int ranks = config.devices == TrainerConfig::kAllDevices ? all : std::max(config.devices, 1);
    if (ranks > 1) return start_ranks(config, ranks, argv, networks);
  }
  check_devices(config, place);
  if (place.alone()) return body(nullptr);
  ATH_CHECK(config.strategy != Strategy::single,
            "--strategy single: must have one rank, but {} has started {}; use ddp or zero1",
            name_of(place.launcher), place.world_size);
  dist::die_with_launcher();
  if (config.device.is_cuda())
    config.device.index = static_cast<std::int16_t>(place.local_rank % cuda_device_count());
  dist::Job job = networks.join(place, config.device);
  config.local_ranks = job.place.local_size;
  config.ranks_note = name_of(place.launcher);
  return run_rank(job, config, body);
}

}  // namespace athanor
