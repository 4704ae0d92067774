#include "trainer/run_main.h"

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include <unistd.h>

#include "tensor/error.h"
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

int complain(int code, std::string what) {
  for (char& c : what) {
    if (c == '\n') c = ' ';
  }
  std::fprintf(stderr, "error: %s\n", what.c_str());
  return code;
}

}  // namespace

int run_main(int argc, char** argv, const std::function<int(int, char**)>& body) {
  restart_with_quiet_threads(argv);
  try {
    return body(argc, argv);
  } catch (const HelpRequested& help) {
    std::fputs(help.what(), stdout);
    return kExitDone;
  } catch (const PeerLostError& error) {
    return complain(kExitPeerLost, error.what());
  } catch (const BackendError& error) {
    return complain(kExitBackend, error.what());
  } catch (const OutOfMemoryError& error) {
    return complain(kExitBackend, error.what());
  } catch (const std::bad_alloc&) {
    return complain(kExitBackend, "out of memory: the system gave no more; use smaller batches or data");
  } catch (const std::exception& error) {  // ArgumentError, IoError, and what a user's own code throws
    return complain(kExitBadInput, error.what());
  }
}

}  // namespace athanor
