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
  /// A stack below which lies a page that may not be touched: overflowing it ends the process at once,
  /// instead of harming a neighbour.
  explicit Fiber(std::size_t stack_bytes);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The next switch to it calls `entry`, which must not return, on an empty stack. What was on it is gone,
  /// without destructors.
  void restart(Entry entry);

  /// Leaves the running fiber, which a later switch continues here, for `to`.
  static void switch_to(Fiber& from, Fiber& to);

  const char* stack() const { return stack_; }
  std::size_t stack_bytes() const { return stack_bytes_; }

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

}  // namespace simt
