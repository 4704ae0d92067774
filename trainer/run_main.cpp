// Explained in docs/a_run_from_flag_to_file.md.
#include "trainer/run_main.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "data/defects.h"
#include "dist/launch/bootstrap.h"
#include "kernels/implementations.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/base/version.h"
#include "trainer/callback.h"
#include "trainer/config.h"
#include "trainer/detail/terminal.h"

namespace athanor {
namespace {

constexpr char kMark[] = "ATHANOR_OMP_SET";
// Spin count of idle threads before they sleep: tens of microseconds, to bridge the gap between two kernels.
// Waking a thread takes as long as a kernel of a small network: LeNet-5 trains 2.4 times as fast as without.
constexpr char kSpins[] = "1000";

/// Opens closed standard files, so that no file opened later gets their descriptors. False if stdout was
/// closed.
bool open_standard_files() {
  bool stdout_open = true;
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(file, F_GETFD) >= 0 || errno != EBADF) continue;
    stdout_open &= file != STDOUT_FILENO;
    (void)::open("/dev/null", O_RDWR);  // gets the lowest free descriptor, this one
  }
  return stdout_open;
}

/// The usual limit of 1,024 open files is one for programs that call select(); each shard of a data set needs
/// one.
void allow_open_files() {
  constexpr rlim_t kEnough = 65'536;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= kEnough) return;
  files.rlim_cur = std::min(files.rlim_max, kEnough);
  ::setrlimit(RLIMIT_NOFILE, &files);
}

/// Flushes stdout, and reports a failure. Returns the exit code.
int flush_stdout() {
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return kExitDone;
  std::fprintf(stderr, "error: stdout: must accept all output, but does not%s%s\n", errno ? ": " : "",
               errno ? std::strerror(errno) : "");
  return kExitBadInput;
}

Failure one_line(int code, std::string what) {
  std::replace(what.begin(), what.end(), '\n', ' ');
  return {code, printable(what)};
}

/// If several ranks fail alike, rank 0 reports it, and their launcher ends the others before they do.
/// Returns the rank of a remaining process; -1 for a single one.
int wait_for_rank_0() {
  try {
    const dist::RankInfo info = dist::find_rank_info();
    if (info.alone()) return -1;
    if (info.rank > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return info.rank;
  } catch (const ArgumentError&) {  // the failure being reported is about this
    return -1;
  }
}

/// Whether memory has a limit of the user's. The stack of a thread is memory, too.
bool memory_is_limited() {
  rlimit memory{};
  return ::getrlimit(RLIMIT_AS, &memory) == 0 && memory.rlim_cur != RLIM_INFINITY;
}

}  // namespace

std::string version_line(const std::string& program) {
  return fmt::format("{} (Athanor) {}, {}", program, version(), cpu_implementations());
}

Failure describe_failure() {
  try {
    throw;
  } catch (const HelpRequested& help) {
    std::fputs(help.what(), stdout);
    return {kExitDone, {}};
  } catch (const PeerLostError& error) {
    return one_line(kExitPeerLost, error.what());
  } catch (const BackendError& error) {
    return one_line(kExitBackend, error.what());
  } catch (const OutOfMemoryError& error) {
    return one_line(kExitBackend, error.what());
  } catch (const DivergedError& error) {
    return one_line(kExitDiverged, error.what());
  } catch (const UnreadableSamplesError& error) {
    return {kExitBadInput, error.what()};  // a line for each
  } catch (const std::bad_alloc&) {
    return {kExitBackend,
            fmt::format("out of memory: {}; use a smaller batch size or data set",
                        memory_is_limited() ? "ulimit -v allows no more" : "the system has no more")};
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again)
      return one_line(kExitBadInput, error.what());
    return {
        kExitBackend,
        fmt::format("threads: the system cannot start another thread (ulimit -{}); raise the limit, or use "
                    "fewer --threads and --workers",
                    memory_is_limited() ? 'v' : 'u')};
  } catch (const std::exception& error) {  // ArgumentError, IoError, and exceptions of user code
    return one_line(kExitBadInput, error.what());
  } catch (...) {
    return {kExitBadInput, "an exception that is not a std::exception, without a message"};
  }
}

int with_standard_files(const std::function<int()>& body) {
  if (!open_standard_files()) {
    std::fputs("error: stdout: must be open, but is closed; send it to a file or to /dev/null\n", stderr);
    return kExitBadInput;
  }
  allow_open_files();
  const int code = body();
  return code == kExitDone ? flush_stdout() : code;
}

void use_passive_openmp_waits(char** argv) {
#if defined(_OPENMP)
  if (std::getenv(kMark)) {  // otherwise `ps` would show the program as "exe"
    if (argv && argv[0]) ::prctl(PR_SET_NAME, ::basename(argv[0]));
    return;
  }
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  setenv(kMark, "1", 1);
  setenv("OMP_WAIT_POLICY", "passive", 1);
  setenv("GOMP_SPINCOUNT", kSpins, 1);
  execv("/proc/self/exe", argv);
  // Only reached without /proc. Everything works, but idle threads spin longer.
#else
  (void)argv;
#endif
}

int run_main(int argc, char** argv, const std::function<int(int, char**)>& body) {
  std::signal(SIGUSR1, SIG_IGN);  // it requests a checkpoint, and may come before there is a run
  return with_standard_files([&] {
    use_passive_openmp_waits(argv);
    std::signal(SIGXFSZ, SIG_IGN);  // above `ulimit -f` a write then fails, reported in one line
    try {
      return body(argc, argv);
    } catch (...) {
      const Failure failure = describe_failure();
      if (failure.line.empty()) return failure.exit_code;
      const int rank = wait_for_rank_0();
      const std::string line = (rank < 0 ? "" : fmt::format("rank {}: ", rank)) + "error: " + failure.line;
      terminal::say(stderr, line);
      return failure.exit_code;
    }
  });
}

}  // namespace athanor
