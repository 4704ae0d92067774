#include "kernels/implementations.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/thread_team.h"

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

const char* threads_of_loops() {
  switch (cpu::loop_threads()) {
    case cpu::LoopThreads::own: return "loops on own threads";
    case cpu::LoopThreads::openmp: return "loops on OpenMP threads";
    default: return "loops on one thread";
  }
}

}  // namespace

std::string cpu_implementations() {
  const std::string library = cpu::has_onednn() ? "oneDNN " + cpu::onednn_version() : "no oneDNN";
  return library + ", " + instruction_set() + ", " + threads_of_loops();
}

}  // namespace athanor
