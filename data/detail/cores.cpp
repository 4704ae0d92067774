#include "data/detail/cores.h"

#include <algorithm>
#include <thread>

#include <sched.h>

namespace athanor::detail {

int usable_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace athanor::detail
