#include "kernels/cpu/isa.h"

#include <cstdlib>
#include <string_view>

#include "tensor/error.h"

namespace athanor::cpu {
namespace {

/// ATHANOR_MAX_CPU_ISA: for who compares results or times with those of a CPU that has less.
bool avx512_is_allowed() {
  const char* const most = std::getenv("ATHANOR_MAX_CPU_ISA");
  const std::string_view name = most ? most : "";
  ATH_CHECK(name.empty() || name == "AVX2" || name == "AVX512",
            "ATHANOR_MAX_CPU_ISA: must be AVX2 or AVX512, but is '{}'", name);
  return name != "AVX2";
}

}  // namespace

bool has_avx512() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool found = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                            __builtin_cpu_supports("avx512cd") && avx512_is_allowed();
  return found;
#else
  return false;
#endif
}

}  // namespace athanor::cpu
