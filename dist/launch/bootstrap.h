#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

// Finds rank and number of ranks in a process's environment, before any communication.

namespace athanor::dist {

/// The launcher of the ranks, in order of detection.
enum class Launcher : std::uint8_t {
  none,       ///< none: a world of one
  mpirun,     ///< OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
  devices,    ///< --devices (launcher.h): torchrun's variables, and ATHANOR_JOB
  torchrun,   ///< RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
  slurm,      ///< SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID of a step started by srun
  nccl_comm,  ///< RANK and WORLD_SIZE, and NCCL_COMM_ID=HOST:PORT
};

/// "mpirun", "torchrun", ...
std::string_view name_of(Launcher launcher);

/// The identity of a process in its job.
struct RankInfo {
  Launcher launcher = Launcher::none;
  int rank = 0, world_size = 1;
  int local_rank = 0, local_size = 1;  ///< among the ranks of this machine
  bool local_known = false;            ///< the launcher has set them
  /// Address of rank 0 for ranks without another connection (dist/launch/rendezvous.h); empty for mpirun.
  std::string host = {};
  int port = 0;
  /// A socket of rank 0 already listening at `port`, which share_from_rank_0() closes; -1: none.
  int listening = -1;
  /// The file of a RankMemory (dist/transports/shared_memory.h), which needs no address; -1: none.
  int shared_memory = -1;
  std::string job = {};  ///< identifies the job on these machines; may be empty

  /// A secret of this job's ranks (ATHANOR_SECRET; --devices draws one); may be empty.
  std::string secret = {};

  bool alone() const { return world_size == 1; }
};

/// The value of an environment variable; nullopt if unset or empty.
using Environment = std::function<std::optional<std::string>(const char*)>;
/// This process's environment.
Environment environment();

/// Determines this process's rank. The first launcher found counts; others must not contradict it. Under
/// mpirun or torchrun, Slurm's variables describe the allocation and are ignored. Throws ArgumentError, one
/// line that lists the values, on a contradiction, an incomplete set of variables, or an invalid number.
RankInfo find_rank_info(const Environment& variables = environment());

/// The first name of a Slurm host list: "gpu[03-07,12],login" gives gpu03.
std::string first_host(std::string_view slurm_list);

}  // namespace athanor::dist
