#include "dist/launch/launcher.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "dist/launch/detail/open_mpi.h"
#include "dist/launch/detail/scratch_folder.h"
#include "dist/launch/rendezvous.h"
#include "tensor/error.h"

namespace athanor::dist {
namespace {

namespace fs = std::filesystem;

constexpr char kLaunched[] = "ATHANOR_LAUNCHED";

std::string this_program() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) detail::fail<BackendError>("--devices: /proc must be there, but is not: {}", error.message());
  return path.string();
}

std::string in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  const std::string all = path ? path : "/usr/bin:/bin";
  for (std::size_t at = 0; at <= all.size();) {
    const std::size_t end = std::min(all.find(':', at), all.size());
    const std::string file = all.substr(at, end - at) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
    at = end + 1;
  }
  return {};
}

std::vector<std::string> for_ranks() {
  return {fmt::format("{}={}", kLaunched, ::isatty(STDOUT_FILENO) ? "terminal" : "file")};
}

}  // namespace

Command with_mpirun(int ranks, const std::vector<std::string>& arguments) {
  std::string mpirun = in_path("mpirun.openmpi");
  if (mpirun.empty()) mpirun = in_path("mpirun");
  if (mpirun.empty()) {
    detail::fail<BackendError>(
        "--devices {}: ranks on the CPU are started by mpirun, which is not in PATH; install openmpi-bin",
        ranks);
  }
  const auto scratch = std::make_shared<ScratchFolder>();
  Command command{
      .arguments = {mpirun, "-n", std::to_string(ranks), "-H", fmt::format("localhost:{}", ranks)},
      .environment = for_ranks()};
  command.arguments.push_back(this_program());
  command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
  for (const auto& [name, value] : kOpenMpiSettings) {
    if (!std::getenv(name)) command.environment.push_back(fmt::format("{}={}", name, value));
  }
  if (const std::string folder = scratch->path().string(); !folder.empty()) {
    command.environment.push_back("OMPI_MCA_btl_vader_backing_directory=" + folder);
    command.environment.push_back("OMPI_MCA_orte_tmpdir_base=" + folder);
  }
  command.keeps = scratch;
  return command;
}

std::vector<Command> one_per_gpu(int ranks, const std::vector<std::string>& arguments) {
  const Listening meeting = listen_anywhere();
  std::vector<Command> commands;
  for (int rank = 0; rank < ranks; ++rank) {
    Command command{.arguments = {this_program()}, .environment = for_ranks(), .rank = rank};
    command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
    const auto set = [&](const char* name, const auto& value) {
      command.environment.push_back(fmt::format("{}={}", name, value));
    };
    set("RANK", rank);
    set("WORLD_SIZE", ranks);
    set("LOCAL_RANK", rank);
    set("LOCAL_WORLD_SIZE", ranks);
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", meeting.port);
    set("ATHANOR_JOB", fmt::format("launcher {} at {}", ::getpid(), meeting.port));
    if (rank == 0) {
      set("ATHANOR_LISTENING", meeting.socket);
      command.inherited = meeting.socket;
    }
    commands.push_back(std::move(command));
  }
  ::fcntl(meeting.socket, F_SETFD, FD_CLOEXEC);
  return commands;
}

void die_with_launcher() {
  if (std::getenv(kLaunched)) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

bool launcher_has_terminal() {
  const char* launched = std::getenv(kLaunched);
  return launched && std::strcmp(launched, "terminal") == 0;
}

}  // namespace athanor::dist
