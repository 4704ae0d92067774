#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

// Who is who, before anybody has spoken: a process learns from its environment that it is rank 2 of 4.

namespace athanor::dist {

/// Who started the ranks, in the order in which they are asked.
enum class Launcher : std::uint8_t {
  none,       ///< nobody: a world of one
  mpirun,     ///< OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
  devices,    ///< --devices on GPUs (launcher.h): torchrun's variables, and ATHANOR_JOB
  torchrun,   ///< RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
  slurm,      ///< SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID of a step that srun has started
  nccl_comm,  ///< RANK and WORLD_SIZE, and NCCL_COMM_ID=HOST:PORT
};

/// "mpirun", "torchrun", ...
std::string_view name_of(Launcher launcher);

/// Which rank of its job a process is.
struct RankInfo {
  Launcher launcher = Launcher::none;
  int rank = 0, world_size = 1;
  int local_rank = 0, local_size = 1;  ///< among the ranks of this machine
  bool local_known = false;            ///< somebody has said so
  /// Where rank 0 can be reached by those who have nothing else in common (dist/launch/rendezvous.h); empty
  /// for mpirun.
  std::string host = {};
  int port = 0;
  /// A socket of rank 0's that listens at `port` already, which share_from_rank_0() closes; -1: none.
  int listening = -1;
  std::string job =
      {};  ///< the same for all ranks of a job, and for no other on these machines; may be empty

  /// What ranks of this job alone know (ATHANOR_SECRET; --devices draws one); may be empty.
  std::string secret = {};

  bool alone() const { return world_size == 1; }
};

/// The value of an environment variable; nothing where it is unset or empty.
using Environment = std::function<std::optional<std::string>(const char*)>;
/// This process' own.
Environment environment();

/// Which rank this process is. The first launcher that speaks counts; those that speak later must not
/// contradict it. Slurm's variables under mpirun or torchrun are those of the allocation which these work in,
/// and are not counted. Throws ArgumentError, one line that lists who says what, where two contradict each
/// other; where one says half of it; and where a number is none.
RankInfo find_rank_info(const Environment& variables = environment());

/// The first name of a list as Slurm writes it: "gpu[03-07,12],login" is gpu03.
std::string first_host(std::string_view slurm_list);

}  // namespace athanor::dist
