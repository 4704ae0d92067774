#include "trainer/run_main.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <unistd.h>

#include "dist/launch/bootstrap.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "trainer/callback.h"
#include "trainer/config.h"

namespace athanor {
namespace {

constexpr char kMark[] = "ATHANOR_OMP_SET";

void restart_with_quiet_threads(char** argv) {
#if defined(_OPENMP)
  if (std::getenv(kMark) || std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  setenv(kMark, "1", 1);
  setenv("OMP_WAIT_POLICY", "passive", 1);
  execv("/proc/self/exe", argv);
  // Still here: no /proc. Everything works, idle threads only spin.
#else
  (void)argv;
#endif
}

Failure one_line(int code, std::string what) {
  std::replace(what.begin(), what.end(), '\n', ' ');
  return {code, printable(what)};
}

/// Where mpirun has started several and all make the same mistake, rank 0 says so, and mpirun ends the others
/// before they do. The rank, for who is left; -1 where there is one.
int wait_for_rank_0() {
  try {
    const dist::Place place = dist::find_place();
    if (place.alone()) return -1;
    if (place.rank > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return place.rank;
  } catch (const ArgumentError&) {  // that is what the failure is about
    return -1;
  }
}

}  // namespace

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
  } catch (const std::bad_alloc&) {
    return {kExitBackend, "out of memory: the system gave no more; use smaller batches or data"};
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again)
      return one_line(kExitBadInput, error.what());
    return {kExitBackend,
            "threads: the system must give all that are asked for, but gives no more (ulimit -u); raise its "
            "limit, or use fewer --threads and --workers"};
  } catch (const std::exception& error) {  // ArgumentError, IoError, and what a user's own code throws
    return one_line(kExitBadInput, error.what());
  }
}

int run_main(int argc, char** argv, const std::function<int(int, char**)>& body) {
  restart_with_quiet_threads(argv);
  std::signal(SIGXFSZ, SIG_IGN);  // past a limit of ulimit -f, a write fails, and that is said in one line
  try {
    return body(argc, argv);
  } catch (...) {
    const Failure failure = describe_failure();
    if (failure.line.empty()) return failure.exit_code;
    const int rank = wait_for_rank_0();
    std::fprintf(stderr, "%serror: %s\n", rank < 0 ? "" : fmt::format("rank {}: ", rank).c_str(),
                 failure.line.c_str());
    return failure.exit_code;
  }
}

}  // namespace athanor
