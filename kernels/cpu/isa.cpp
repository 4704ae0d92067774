#include "kernels/cpu/isa.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <cstdlib>
#include <string_view>

#include <cpuid.h>

#include "tensor/base/error.h"

namespace athanor::cpu {
namespace {

/// ATHANOR_MAX_CPU_ISA: to compare results or times with those of a lesser CPU.
bool avx512_is_allowed() {
  const char* const most = std::getenv("ATHANOR_MAX_CPU_ISA");
  const std::string_view name = most ? most : "";
  ATH_CHECK(name.empty() || name == "AVX2" || name == "AVX512",
            "ATHANOR_MAX_CPU_ISA: must be AVX2 or AVX512, but is '{}'", name);
  return name != "AVX2";
}

/// A bit of what cpuid says of its leaf 7, of which clang 14 has no names.
bool has_feature_7d(int bit) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> bit & 1) != 0;
}

}  // namespace

bool has_avx2() {
  static const bool found =
      [] {  // clang 14 has no name for F16C
        unsigned a = 0, b = 0, c = 0, d = 0;
        return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
      }() &&
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return found;
}

bool has_avx512() {
  static const bool found = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                            __builtin_cpu_supports("avx512cd") && avx512_is_allowed();
  return found;
}

bool has_avx512_vnni() {
  static const bool found = has_avx512() && __builtin_cpu_supports("avx512vnni");
  return found;
}

bool has_avx512_bf16() {
  static const bool found = __builtin_cpu_supports("avx512bf16") && avx512_is_allowed();
  return found;
}

bool has_avx512_vbmi() {
  static const bool found = has_avx512() && __builtin_cpu_supports("avx512vbmi");
  return found;
}

bool has_amx_bf16() {
  static const bool found = has_feature_7d(22) && avx512_is_allowed();
  return found;
}

bool has_amx_int8() {
  static const bool found = has_feature_7d(25) && avx512_is_allowed();
  return found;
}

}  // namespace athanor::cpu

#else

namespace athanor::cpu {

bool has_avx2() {
  return false;
}
bool has_avx512() {
  return false;
}
bool has_avx512_vnni() {
  return false;
}
bool has_avx512_bf16() {
  return false;
}
bool has_avx512_vbmi() {
  return false;
}
bool has_amx_bf16() {
  return false;
}
bool has_amx_int8() {
  return false;
}

}  // namespace athanor::cpu

#endif
