#pragma once

#include "kernels/context.h"

namespace athanor {

/// While alive, cpu_context() of this thread is `context`, with as many threads as the thread's own has: who
/// computes on many threads that come and go keeps a few contexts, whose primitives are there already. Only
/// one thread may have it at a time. Nests.
class BorrowedContext {
 public:
  explicit BorrowedContext(CpuContext& context);
  ~BorrowedContext();
  BorrowedContext(const BorrowedContext&) = delete;
  BorrowedContext& operator=(const BorrowedContext&) = delete;

 private:
  CpuContext* saved_;
};

}  // namespace athanor
