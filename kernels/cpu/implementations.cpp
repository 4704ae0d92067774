#include "kernels/implementations.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/onednn.h"

namespace athanor {
namespace {

// The instruction set of this library's loops; oneDNN detects its own.
const char* instruction_set() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(ATHANOR_ONE_ISA)
  if (cpu::has_avx512()) return "AVX-512";
#endif
#if defined(__AVX512F__)
  return "AVX-512";
#elif defined(__AVX2__)
  return "AVX2";
#elif defined(__ARM_NEON)
  return "NEON";
#else
  return "baseline instructions";
#endif
}

}  // namespace

std::string cpu_implementations() {
  const std::string library = cpu::has_onednn() ? "oneDNN " + cpu::onednn_version() : "no oneDNN";
  return library + ", " + instruction_set();
}

}  // namespace athanor
