#include "trainer/run_on_ranks.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include <unistd.h>

#include "dist/launch/launcher.h"
#include "dist/launch/rendezvous.h"
#include "dist/watch/watchdog.h"
#include "tensor/base/error.h"
#include "tensor/stream.h"
#include "trainer/detail/terminal.h"
#include "trainer/run_main.h"

namespace athanor {
namespace {

void warn(const std::string& what) {
  if (!what.empty()) terminal::say(stderr, "warning: " + what);
}

int start_ranks(const TrainerConfig& config, int ranks, char** argv, const dist::Networks& networks) {
  ATH_CHECK(config.max_restarts == 0 || config.resume == "auto",
            "--max-restarts {}: needs --resume auto, or a restart would train from the beginning",
            config.max_restarts);
  dist::LaunchOptions options{.ranks = ranks,
                              .nccl = config.device.is_cuda() && networks.nccl,
                              .end_within = config.collectives.timeout,
                              .restarts = config.max_restarts};
  for (char** at = argv + 1; *at; ++at) options.arguments.emplace_back(*at);
  if (options.nccl) {
    ATH_CHECK(config.device.index == 0, "--device {}: must have no number if --devices is {}",
              config.device.str(), ranks);
    ATH_CHECK(ranks <= cuda_device_count(), "--devices: must be at most {}, one process per GPU, but is {}",
              cuda_device_count(), ranks);
  } else {
    ATH_CHECK(
        config.collectives.algorithm != dist::Algorithm::native,
        "--algorithm native: needs MPI's collectives, but ranks of --devices {} share memory; start them by "
        "mpirun, or choose another algorithm",
        ranks);
    warn(dist::check_ranks(ranks));
  }
  return dist::launch(options);
}

int gpu_of(const dist::RankInfo& info) {
  return info.local_rank % cuda_device_count();
}

/// Checks flags about ranks that a launcher has started.
void check_flags(const TrainerConfig& config, const dist::RankInfo& info) {
  ATH_CHECK(
      config.devices <= 0 || config.devices == info.local_size,
      "--devices {}: must be the number of ranks that {} has started on this machine, {}; or leave it out",
      config.devices, name_of(info.launcher), info.local_size);
  if (info.alone()) return;
  ATH_CHECK(config.strategy != Strategy::single,
            "--strategy single: must have one rank, but {} has started {}; use ddp or zero1",
            name_of(info.launcher), info.world_size);
  if (!config.device.is_cuda()) return;
  ATH_CHECK(config.device.index == 0 || config.device.index == gpu_of(info),
            "--device {}: must have no number if {} has started several ranks, of which rank {} uses cuda:{}",
            config.device.str(), name_of(info.launcher), info.rank, gpu_of(info));
  ATH_CHECK(info.local_known || cuda_device_count() == 1,
            "ranks: RANK and WORLD_SIZE must come with LOCAL_RANK and LOCAL_WORLD_SIZE on a machine with {} "
            "GPUs, or all ranks would use the first",
            cuda_device_count());
}

/// Checks flags about several ranks in a single process. --devices auto accepts one, as does a launcher told
/// to start one rank; zero1 without any request for ranks is a mistake.
void check_alone(TrainerConfig& config, const dist::RankInfo& info) {
  const bool automatic = config.devices == TrainerConfig::kAllDevices;
  ATH_CHECK(config.strategy != Strategy::zero1 || automatic || info.launcher != dist::Launcher::none,
            "--strategy zero1: needs several devices to shard masters and optimizer state over, but there is "
            "one; add --devices N, or leave it out");
  if (automatic)
    config.ranks_note = config.device.is_cuda() ? "--devices auto: one GPU" : "--devices auto: no GPU in use";
  if (config.strategy != Strategy::automatic && config.strategy != Strategy::single)
    config.ranks_note +=
        fmt::format("{}nothing to share for {}", automatic ? "; " : "", name_of(config.strategy));
}

/// The folder for flight records: the run's, or the current one.
std::filesystem::path flight_folder(const TrainerConfig& config) {
  const bool own = !config.flight_dir.empty();
  const std::filesystem::path wanted = own ? config.flight_dir : config.checkpoint_dir;
  if (wanted.empty()) return ::access(".", W_OK) == 0 ? "." : "";
  std::error_code error;
  std::filesystem::create_directories(wanted, error);
  if (!error && ::access(wanted.c_str(), W_OK) != 0) error = {errno, std::generic_category()};
  if (error) {
    detail::fail<IoError>("{}: {} must be a folder that can be written to, but got: {}",
                          own ? "--flight-dir" : "--checkpoint-dir", wanted.string(), error.message());
  }
  return wanted;
}

/// Reports the exception being handled, and ends all ranks with its exit code.
[[noreturn]] void end_all(const dist::ProcessGroup& job, dist::Watchdog* watchdog) {
  const Failure failure = describe_failure();
  if (watchdog)
    watchdog->report_own_failure(failure.exit_code, failure.line, failure.exit_code != kExitBadInput);
  // Often all ranks fail alike: then rank 0 reports it, and the others end before they do.
  if (job.info.rank > 0) std::this_thread::sleep_for(std::chrono::milliseconds(900));
  std::fflush(stdout);
  std::fprintf(stderr, "rank %d: error: %s\n", job.info.rank, failure.line.c_str());
  std::fflush(stderr);
  job.abort(failure.exit_code);
  std::_Exit(failure.exit_code);
}

int run_rank(const dist::RankInfo& info, TrainerConfig& config, const dist::Networks& networks,
             const std::function<int(dist::Transport*)>& body) {
  if (info.rank == 0 && config.device.is_cuda()) warn(dist::warn_of_strangers(info));
  dist::ProcessGroup job{.info = info, .timeout = config.collectives.timeout};
  std::optional<dist::Watchdog> watchdog;
  try {
    networks.join(job, config.device);
    config.local_ranks = job.info.local_size;
    config.ranks_note = fmt::format("{}{}", name_of(info.launcher), job.network);
    config.collectives.node_size = job.info.local_size;
    if (config.deterministic && config.collectives.algorithm == dist::Algorithm::automatic)
      config.collectives.algorithm = dist::Algorithm::rank_order;
    watchdog.emplace(*job.transport, dist::WatchdogOptions{.folder = flight_folder(config),
                                                           .agreement = std::chrono::milliseconds(500)});
    return body(job.transport.get());
  } catch (...) {
    if (!job.abort) throw;  // it has not joined: no rank waits for it
    end_all(job, watchdog ? &*watchdog : nullptr);
  }
}

}  // namespace

int run_on_ranks(TrainerConfig& config, char** argv, const dist::Networks& networks,
                 const std::function<int(dist::Transport*)>& body) {
  const dist::RankInfo info = dist::find_rank_info();
  // A shell in a Slurm allocation is a step of one task, without ranks yet.
  const bool unlaunched =
      info.launcher == dist::Launcher::none || (info.launcher == dist::Launcher::slurm && info.alone());
  if (unlaunched) {
    const int all = config.device.is_cuda() ? cuda_device_count() : 1;
    const int ranks = config.devices == TrainerConfig::kAllDevices ? all : std::max(config.devices, 1);
    if (ranks > 1) return start_ranks(config, ranks, argv, networks);
  }
  ATH_CHECK(config.max_restarts == 0 || info.launcher == dist::Launcher::devices,
            "--max-restarts {}: needs --devices, which restarts its ranks; {}", config.max_restarts,
            unlaunched ? "a single process has none" : "for other ranks, restart the job with its launcher");
  check_flags(config, info);
  if (info.alone()) {
    check_alone(config, info);
    return body(nullptr);
  }
  if (config.device.is_cuda()) config.device.index = static_cast<std::int16_t>(gpu_of(info));
  return run_rank(info, config, networks, body);
}

}  // namespace athanor
