#include "kernels/cpu/isa.h"

namespace athanor::cpu {

bool has_avx512() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool found = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                            __builtin_cpu_supports("avx512cd");
  return found;
#else
  return false;
#endif
}

}  // namespace athanor::cpu
