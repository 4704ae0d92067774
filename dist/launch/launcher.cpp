#include "dist/launch/launcher.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <thread>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "dist/launch/detail/open_mpi.h"
#include "dist/launch/detail/scratch_folder.h"
#include "dist/launch/rendezvous.h"
#include "tensor/error.h"

namespace athanor::dist {
namespace {

namespace fs = std::filesystem;

constexpr char kLaunched[] = "ATHANOR_LAUNCHED";

// Above a few ranks per core they only take turns; above some dozens, starting them takes minutes.
constexpr int kManyPerCore = 4, kMaxPerCore = 32;
/// train_digits alone takes 57 MiB at its peak (x86-64, one thread); other trainings take more.
constexpr std::uintmax_t kBytesPerRank = 64 << 20;
/// Threads of mpirun, and of each rank: main, MPI's two, ours for buckets and signals, a loader.
constexpr int kThreads = 5, kThreadsPerRank = 6;
/// Open files of mpirun: with 30 for two ranks it hangs.
constexpr int kFiles = 32, kFilesPerRank = 8;
/// Size of Open MPI 4.1's shared-memory files.
constexpr std::uintmax_t kSharedBytes = 16 << 20, kSharedBytesPerRank = 5 << 20;

std::string this_program() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) detail::fail<BackendError>("--devices: needs /proc, but got: {}", error.message());
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

/// Bytes available for new processes; 0: unknown.
std::uintmax_t free_memory() {
  std::ifstream file("/proc/meminfo");
  std::uintmax_t kib = 0;
  for (std::string name, unit; file >> name >> kib && std::getline(file, unit);)
    if (name == "MemAvailable:") return kib << 10;
  return 0;
}

/// Without enough threads, Open MPI prints a dozen lines or hangs: so first tests that they can be created.
void try_threads(int ranks) {
  const int count = kThreads + kThreadsPerRank * ranks;
  std::atomic<bool> over{false};
  std::vector<std::jthread> threads;
  try {
    while (std::ssize(threads) < count) threads.emplace_back([&over] { over.wait(false); });
  } catch (const std::system_error& error) {
    over = true;
    over.notify_all();
    detail::fail<BackendError>(
        "--devices {}: needs {} processes and threads, but the system allows {} (ulimit -u): {}", ranks,
        count, threads.size(), error.code().message());
  }
  over = true;
  over.notify_all();
}

/// Open MPI hangs where it may not write its files.
void may_write_files(int ranks) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= kSharedBytesPerRank) return;
  detail::fail<BackendError>("--devices {}: needs files of {} bytes, but the system allows {} (ulimit -f)",
                             ranks, kSharedBytesPerRank, limit.rlim_cur);
}

/// Raises the limit if needed: with fewer, Open MPI hangs.
void allow_open_files(int ranks) {
  const auto needed = static_cast<rlim_t>(kFiles + kFilesPerRank * ranks);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = needed;
  if (limit.rlim_max >= needed && ::setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  detail::fail<BackendError>("--devices {}: needs {} open files, but the system allows {} (ulimit -n)", ranks,
                             needed, before);
}

std::vector<std::string> for_ranks() {
  return {fmt::format("{}={}", kLaunched, ::isatty(STDOUT_FILENO) ? "terminal" : "file")};
}

}  // namespace

std::string check_ranks(int ranks, int cores, std::uintmax_t memory) {
  ATH_CHECK(ranks <= kMaxPerCore * cores,
            "--devices {}: must be at most {}, {} ranks for each core of this machine; to start more anyway, "
            "use mpirun",
            ranks, kMaxPerCore * cores, kMaxPerCore);
  ATH_CHECK(memory == 0 || memory / static_cast<std::uintmax_t>(ranks) >= kBytesPerRank,
            "--devices {}: must leave {} MiB of memory to each rank, but {} MiB are free in all; use fewer",
            ranks, kBytesPerRank >> 20, memory >> 20);
  if (ranks <= kManyPerCore * cores) return {};
  return fmt::format("--devices {}: {} ranks share each core, and mostly wait for one another", ranks,
                     ranks / cores);
}

std::string check_ranks(int ranks) {
  return check_ranks(ranks, static_cast<int>(std::max(1u, std::thread::hardware_concurrency())),
                     free_memory());
}

Command with_mpirun(int ranks, const std::vector<std::string>& arguments) {
  allow_open_files(ranks);
  may_write_files(ranks);
  std::string mpirun = in_path("mpirun.openmpi");
  if (mpirun.empty()) mpirun = in_path("mpirun");
  if (mpirun.empty()) {
    detail::fail<BackendError>(
        "--devices {}: ranks on the CPU are started by mpirun, which is not in PATH; install openmpi-bin",
        ranks);
  }
  try_threads(ranks);
  const auto scratch = std::make_shared<ScratchFolder>(kSharedBytes + kSharedBytesPerRank * ranks);
  Command command{
      .arguments = {mpirun, "-n", std::to_string(ranks), "-H", fmt::format("localhost:{}", ranks)},
      .environment = for_ranks()};
  command.arguments.push_back(this_program());
  command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
  for (const auto& [name, value] : kOpenMpiSettings) {
    if (!std::getenv(name)) command.environment.push_back(fmt::format("{}={}", name, value));
  }
  // Excludes networks to other machines: Open MPI 5 warns about those that cannot reach this machine.
  if (!std::getenv("OMPI_MCA_btl_tcp_if_include")) {
    command.environment.push_back("OMPI_MCA_btl_tcp_if_include=lo");
  }
  for (const char* name : {"OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_orte_tmpdir_base"})
    command.environment.push_back(fmt::format("{}={}", name, scratch->path().string()));
  command.keeps = scratch;
  return command;
}

std::vector<Command> one_per_gpu(int ranks, const std::vector<std::string>& arguments) {
  const Listening meeting = listen_anywhere();
  const std::string secret = draw_secret();
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
    set("ATHANOR_SECRET", secret);
    if (rank == 0) {
      set("ATHANOR_LISTENING", meeting.socket);
      command.inherited = meeting.socket;
    }
    commands.push_back(std::move(command));
  }
  return commands;
}

bool started_by_devices() {
  return std::getenv(kLaunched) != nullptr;
}

void die_with_launcher() {
  if (started_by_devices()) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

bool launcher_has_terminal() {
  const char* launched = std::getenv(kLaunched);
  return launched && std::strcmp(launched, "terminal") == 0;
}

}  // namespace athanor::dist
