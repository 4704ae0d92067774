#pragma once

#include "kernels/cpu/context.h"

namespace athanor {

/// While alive, this thread's cpu_context() is `context`, with the thread's own number of threads. For code
/// that computes on many short-lived threads: a few shared contexts keep their primitives. Only one thread
/// may use it at a time. Nests.
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
