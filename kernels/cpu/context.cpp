#include "kernels/cpu/context.h"

#include <cstdlib>

#include "kernels/cpu/borrowed_context.h"
#include "kernels/cpu/primitive_cache.h"
#include "kernels/cpu/thread_team.h"
#include "tensor/base/cores.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace athanor {
namespace {

int default_threads() {
#if defined(_OPENMP)
  static const int threads = std::getenv("OMP_NUM_THREADS") ? omp_get_max_threads() : usable_cores();
  return threads;
#else
  return 1;
#endif
}

}  // namespace

void SlotScratch::reserve(std::int64_t slots, std::size_t bytes) {
  constexpr std::size_t kStep = 64 << 10;  // so that it rarely grows
  const AllocTag tag("workspace");
  if (slots_.size() < static_cast<std::size_t>(slots)) slots_.resize(static_cast<std::size_t>(slots));
  for (std::int64_t i = 0; i < slots; ++i) {
    Slot& slot = slots_[static_cast<std::size_t>(i)];
    if (slot.bytes >= bytes) continue;
    slot = {};  // first, so that both are never there at once
    const std::size_t rounded = (bytes + kStep - 1) / kStep * kStep;
    slot.memory = std::make_unique<Scratch>(rounded, kCpu);
    slot.bytes = rounded;
  }
}

CpuContext::CpuContext() : threads_(default_threads()) {
  if (cpu::loop_threads() == cpu::LoopThreads::own) team_ = std::make_unique<cpu::ThreadTeam>();
  set_own_step(&step_state_);
}
CpuContext::~CpuContext() = default;

void CpuContext::set_threads(int threads) {
  ATH_CHECK(threads >= 1 && threads <= 1024, "threads: must be in [1, 1024], but got {}", threads);
#if defined(_OPENMP)
  omp_set_num_threads(threads);  // determines the team sizes of oneDNN and Eigen
  threads_ = threads;
#endif
}

cpu::PrimitiveCache& CpuContext::primitives() {
  if (!primitives_) primitives_ = std::make_unique<cpu::PrimitiveCache>();
  return *primitives_;
}

namespace {
constinit thread_local CpuContext* borrowed = nullptr;
}

BorrowedContext::BorrowedContext(CpuContext& context) : saved_(borrowed) {
  const int threads = cpu_context().threads();
  if (context.threads() != threads) context.set_threads(threads);
  context.deterministic = cpu_context().deterministic;
  borrowed = &context;
}
BorrowedContext::~BorrowedContext() {
  borrowed = saved_;
}

CpuContext& cpu_context() {
  if (borrowed) return *borrowed;
  thread_local CpuContext context;
  return context;
}

}  // namespace athanor
