#include "dist/launch/launcher.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include <unistd.h>

#include "dist/launch/rendezvous.h"
#include "dist/transports/shared_memory.h"
#include "dist/watch/watchdog.h"
#include "tensor/base/error.h"

namespace athanor::dist {
namespace {

// Above a few ranks per core they only take turns; above some dozens, starting them takes minutes.
constexpr int kManyPerCore = 4, kMaxPerCore = 32;
/// train_digits alone takes 57 MiB at its peak (x86-64, one thread); other trainings take more.
constexpr std::uintmax_t kBytesPerRank = 64 << 20;

std::string this_program() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) detail::fail<BackendError>("--devices: needs /proc, but got: {}", error.message());
  return path.string();
}

/// Bytes available for new processes; 0: unknown.
std::uintmax_t free_memory() {
  std::ifstream file("/proc/meminfo");
  std::uintmax_t kib = 0;
  for (std::string name, unit; file >> name >> kib && std::getline(file, unit);)
    if (name == "MemAvailable:") return kib << 10;
  return 0;
}

std::vector<Command> commands_of(const LaunchOptions& options) {
  std::vector<Command> commands;
  for (int rank = 0; rank < options.ranks; ++rank) {
    Command& command = commands.emplace_back();
    command.arguments = {this_program()};
    command.arguments.insert(command.arguments.end(), options.arguments.begin(), options.arguments.end());
    command.environment = {fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", options.ranks),
                           fmt::format("LOCAL_RANK={}", rank),
                           fmt::format("LOCAL_WORLD_SIZE={}", options.ranks),
                           fmt::format("ATHANOR_JOB=launcher {}", ::getpid())};
  }
  return commands;
}

int run_over_nccl(const LaunchOptions& options, const RunOptions& run) {
  std::vector<Command> commands = commands_of(options);
  const Listening meeting = listen_anywhere();
  const std::string secret = draw_secret();
  for (Command& command : commands) {
    command.environment.insert(
        command.environment.end(),
        {"MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", meeting.port), "ATHANOR_SECRET=" + secret});
  }
  commands[0].environment.push_back(fmt::format("ATHANOR_LISTENING={}", meeting.socket));
  commands[0].inherited.push_back(meeting.socket);
  const int code = run_processes(commands, run);
  ::close(meeting.socket);
  return code;
}

int run_over_shared_memory(const LaunchOptions& options, RunOptions run) {
  std::vector<Command> commands = commands_of(options);
  RankMemory memory(options.ranks);
  for (Command& command : commands) {
    command.environment.push_back(fmt::format("ATHANOR_SHARED_MEMORY={}", memory.file()));
    command.inherited.push_back(memory.file());
  }
  run.on_end = [&](int rank, int code) { memory.set_ended(rank, code); };
  return run_processes(commands, run);
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

int launch(const LaunchOptions& options) {
  bool told_to_end = false;
  const RunOptions run{.end_within = options.end_within, .on_signal = [&] { told_to_end = true; }};
  return run_with_restarts(options.restarts, told_to_end, [&] {
    return options.nccl ? run_over_nccl(options, run) : run_over_shared_memory(options, run);
  });
}

bool has_lost_rank(int exit_code) {
  return exit_code == kExitPeerLost || exit_code == 128 + SIGKILL || exit_code == 128 + SIGSEGV ||
         exit_code == 128 + SIGBUS;
}

int run_with_restarts(int restarts, const bool& told_to_end, const std::function<int()>& start) {
  for (int made = 0;; ++made) {
    const int code = start();
    if (!has_lost_rank(code) || told_to_end || made >= restarts) return code;
    std::fprintf(stderr, "warning: a rank was lost, and the job ended with code %d: restart %d of %d\n", code,
                 made + 1, restarts);
  }
}

}  // namespace athanor::dist
