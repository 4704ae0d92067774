#pragma once

#include <cstddef>

namespace simt {

/// A stack of its own, and where on it to go on. Switching is symmetric: from any fiber to any other, without
/// a call of the system. Not thread-safe: whoever holds the executor's lock switches.
class Fiber {
 public:
  using Entry = void (*)();

  /// The stack of the host thread that runs; it needs no memory.
  Fiber() = default;
  /// On a stack of StackRegion.
  Fiber(char* stack, std::size_t stack_bytes) : stack_(stack), stack_bytes_(stack_bytes) {}
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The next switch to it calls `entry`, which must not return, on an empty stack. What was on it is gone,
  /// without destructors.
  void restart(Entry entry);

  /// Leaves the running fiber, which a later switch continues here, for `to`.
  static void switch_to(Fiber& from, Fiber& to);

 private:
  static void arrive();
  static void enter();

  char* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* context_ = nullptr;  // the saved stack pointer, or a ucontext_t
  Entry entry_ = nullptr;
  // What AddressSanitizer must know of a stack that is left and entered.
  void* fake_stack_ = nullptr;
  const void* known_bottom_ = nullptr;
  std::size_t known_bytes_ = 0;
};

/// Addresses for many stacks side by side; memory comes when it is touched. Below each lies a page that may
/// not be touched: overflowing a stack ends the process at once, instead of harming a neighbour.
class StackRegion {
 public:
  StackRegion(std::size_t count, std::size_t stack_bytes);
  StackRegion(const StackRegion&) = delete;
  StackRegion& operator=(const StackRegion&) = delete;

  char* take();
  std::size_t stack_bytes() const { return stack_bytes_; }
  const char* begin() const { return begin_; }
  const char* end() const { return end_; }

 private:
  std::size_t stack_bytes_, page_;
  char *begin_, *end_, *next_;
};

}  // namespace simt
