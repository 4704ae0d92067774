#include "dist/launch/restart.h"

#include <csignal>
#include <cstdio>

#include "dist/watch/watchdog.h"

namespace athanor::dist {

bool has_lost_rank(int exit_code) {
  return exit_code == kExitPeerLost || exit_code == 128 + SIGKILL || exit_code == 128 + SIGSEGV ||
         exit_code == 128 + SIGBUS;
}

int run_with_restarts(int restarts, const std::function<int()>& start) {
  for (int made = 0;; ++made) {
    const int code = start();
    if (!has_lost_rank(code) || made >= restarts) return code;
    std::fprintf(stderr, "warning: a rank was lost, and the job ended with code %d: restart %d of %d\n", code,
                 made + 1, restarts);
  }
}

}  // namespace athanor::dist
