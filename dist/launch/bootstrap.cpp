#include "dist/launch/bootstrap.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "kernels/hash.h"
#include "tensor/base/error.h"

namespace athanor::dist {
namespace {

int number(const Environment& environment, const char* name, int low, int high) {
  const std::string text = environment(name).value_or("");
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  ATH_CHECK(error == std::errc() && end == text.data() + text.size() && value >= low && value <= high,
            "ranks: {} must be a whole number in [{}, {}], but is '{}'", name, low, high, text);
  return value;
}

/// True if all of `names` are set, false if none is; throws otherwise.
bool all_set(const Environment& environment, std::initializer_list<const char*> names) {
  std::string there, missing;
  for (const char* name : names) {
    std::string& list = environment(name) ? there : missing;
    list += list.empty() ? name : fmt::format(", {}", name);
  }
  ATH_CHECK(there.empty() || missing.empty(),
            "ranks: {} must come with {}, but that is not set; set it, or unset the others", there, missing);
  return missing.empty();
}

constexpr int kMaxRanks = 1 << 20;

/// A launcher's environment variables for rank and sizes; null: the launcher has none.
struct Variables {
  const char *rank, *size, *local_rank, *local_size;
};
constexpr Variables kMpirun{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Variables kTorchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Variables kSlurm{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr};

/// The values announced by a launcher, with their variables.
struct Announcement {
  RankInfo info;
  const Variables& in;
};

Announcement read(const Environment& environment, Launcher launcher, const Variables& in) {
  RankInfo info{.launcher = launcher};
  info.world_size = number(environment, in.size, 1, kMaxRanks);
  info.rank = number(environment, in.rank, 0, info.world_size - 1);
  info.local_known = environment(in.local_rank).has_value();
  if (info.local_known) info.local_rank = number(environment, in.local_rank, 0, info.world_size - 1);
  if (in.local_size && environment(in.local_size))
    info.local_size = number(environment, in.local_size, 1, info.world_size);
  // A local rank without a local size: assumes the smallest possible size.
  info.local_size = std::max(info.local_size, info.local_rank + 1);
  return {info, in};
}

std::optional<Announcement> ask_mpirun(const Environment& environment) {
  if (!all_set(environment, {kMpirun.rank, kMpirun.size})) return std::nullopt;
  return read(environment, Launcher::mpirun, kMpirun);
}

// Derives a port from the job's name, so that two jobs on one machine use different ones. From 20480 on,
// below the system's ephemeral ports.
int port_of(std::string_view job) {
  return 20480 + static_cast<int>(kernels::fnv1a(job) % 8192);
}

std::optional<Announcement> ask_torchrun(const Environment& environment) {
  const bool ranks = environment("RANK") || environment("WORLD_SIZE");
  const bool address = environment("MASTER_ADDR") || environment("MASTER_PORT");
  if (!ranks) return std::nullopt;  // an address alone does not tell the rank
  const bool shared = environment("ATHANOR_SHARED_MEMORY").has_value();
  const bool by_nccl = !shared && !address && environment("NCCL_COMM_ID");
  (void)(by_nccl || shared ? all_set(environment, {"RANK", "WORLD_SIZE"})
                           : all_set(environment, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}));
  Announcement announced = read(environment, by_nccl ? Launcher::nccl_comm : Launcher::torchrun, kTorchrun);
  RankInfo& info = announced.info;
  if (environment("ATHANOR_JOB")) info.launcher = Launcher::devices;
  for (const char* name : {"ATHANOR_JOB", "TORCHELASTIC_RUN_ID"}) {
    if (info.job.empty()) info.job = environment(name).value_or("");
  }
  if (shared) info.shared_memory = number(environment, "ATHANOR_SHARED_MEMORY", 0, 1 << 20);
  if (by_nccl || shared) return announced;
  info.host = *environment("MASTER_ADDR");
  info.port = number(environment, "MASTER_PORT", 1, 65535);
  // torchrun's own store listens at that port.
  if (environment("TORCHELASTIC_USE_AGENT_STORE") == "True")
    info.port = port_of(fmt::format("{} {}:{}", info.job, info.host, info.port));
  if (environment("ATHANOR_LISTENING") && info.rank == 0)
    info.listening = number(environment, "ATHANOR_LISTENING", 0, 1 << 20);
  return announced;
}

// Slurm's list of tasks per machine: "4(x2),3" is 4, 4, 3.
int tasks_of_node(std::string_view list, int node) {
  for (std::size_t at = 0; at < list.size();) {
    const std::string_view item = list.substr(at, std::min(list.find(',', at), list.size()) - at);
    int tasks = 1, times = 1;
    const char* end = item.data() + item.size();
    const char* behind = std::from_chars(item.data(), end, tasks).ptr;
    if (end - behind > 2) std::from_chars(behind + 2, end, times);  // "(x"
    if (node < times) return tasks;
    node -= times;
    at += item.size() + 1;
  }
  return 1;
}

// A batch script, or a shell in an allocation, has all of Slurm's variables without being a step.
std::optional<Announcement> ask_slurm(const Environment& environment) {
  if (!environment(kSlurm.size) || !environment(kSlurm.rank)) return std::nullopt;
  Announcement announced = read(environment, Launcher::slurm, kSlurm);
  RankInfo& info = announced.info;
  if (const auto tasks = environment("SLURM_STEP_TASKS_PER_NODE")) {
    const int node = environment("SLURM_NODEID") ? number(environment, "SLURM_NODEID", 0, kMaxRanks) : 0;
    info.local_size = std::max(info.local_size, tasks_of_node(*tasks, node));
  }
  info.job = fmt::format("slurm {}.{}", environment("SLURM_JOB_ID").value_or("?"),
                         environment("SLURM_STEP_ID").value_or("?"));
  const auto nodes = environment("SLURM_STEP_NODELIST");
  info.host = environment("MASTER_ADDR")
                  .value_or(first_host(nodes ? *nodes : environment("SLURM_JOB_NODELIST").value_or("")));
  info.port = environment("MASTER_PORT") ? number(environment, "MASTER_PORT", 1, 65535) : port_of(info.job);
  return announced;
}

/// NCCL's variable gives the address of rank 0, and must not contradict another.
void read_nccl(const Environment& environment, RankInfo& info) {
  const auto id = environment("NCCL_COMM_ID");
  if (!id || info.launcher == Launcher::mpirun || info.shared_memory >= 0) return;
  ATH_CHECK(info.launcher != Launcher::none,
            "ranks: NCCL_COMM_ID must come with RANK and WORLD_SIZE, but is set alone, to '{}'", *id);
  const std::size_t colon = id->rfind(':');
  const Environment port = [&](const char*) {
    return std::optional<std::string>(colon == std::string::npos ? "" : id->substr(colon + 1));
  };
  const std::string host = id->substr(0, colon);
  const int number_of_port = number(port, "the port of NCCL_COMM_ID=HOST:PORT", 1, 65535);
  const bool same = info.host.empty() || (info.host == host && info.port == number_of_port);
  ATH_CHECK(same || info.launcher == Launcher::slurm,
            "ranks: rank 0 must have one address, but NCCL_COMM_ID says {}, and MASTER_ADDR and MASTER_PORT "
            "say {}:{}; unset one",
            *id, info.host, info.port);
  info.host = host;
  info.port = number_of_port;
}

}  // namespace

std::string_view name_of(Launcher launcher) {
  constexpr std::string_view kNames[] = {"no launcher", "mpirun", "--devices",
                                         "torchrun",    "Slurm",  "NCCL_COMM_ID"};
  return kNames[static_cast<std::size_t>(launcher)];
}

Environment environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (!value || !*value) return std::nullopt;
    return std::string(value);
  };
}

RankInfo find_rank_info(const Environment& environment) {
  std::vector<Announcement> all;
  for (const auto ask : {ask_mpirun, ask_torchrun, ask_slurm}) {
    if (ask == ask_slurm && !all.empty()) {
      // A launcher inside a step starts its own processes; variables set by hand do not.
      const bool inside = all[0].info.launcher == Launcher::mpirun || environment("TORCHELASTIC_RUN_ID") ||
                          environment("ATHANOR_JOB");
      if (inside) continue;
    }
    if (auto announced = ask(environment)) all.push_back(std::move(*announced));
  }
  if (all.empty()) {
    RankInfo alone;
    read_nccl(environment, alone);
    return alone;
  }
  const RankInfo& first = all[0].info;
  for (const Announcement& other : all) {
    if (other.info.rank == first.rank && other.info.world_size == first.world_size) continue;
    std::string list;
    for (const Announcement& announced : all) {
      list += fmt::format("{}{} ({}, {}) says rank {} of {}", list.empty() ? "" : ", ",
                          name_of(announced.info.launcher), announced.in.rank, announced.in.size,
                          announced.info.rank, announced.info.world_size);
    }
    detail::fail<>(
        "ranks: launchers must agree on the rank of this process, but {}; unset the variables of one", list);
  }
  RankInfo info = first;
  info.secret = environment("ATHANOR_SECRET").value_or("");
  read_nccl(environment, info);
  return info;
}

std::string first_host(std::string_view list) {
  const std::size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string_view::npos || comma < bracket) return std::string(list.substr(0, comma));
  const std::size_t end = list.find_first_of(",-]", bracket);
  return std::string(list.substr(0, bracket)) +
         std::string(list.substr(bracket + 1, std::min(end, list.size()) - bracket - 1));
}

}  // namespace athanor::dist
