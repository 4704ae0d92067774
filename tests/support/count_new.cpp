#include "tests/support/count_new.h"

#include <atomic>
#include <cstdlib>
#include <new>

// Replaces the global operators of the binary it is linked into, in a file of its own: the compiler must not
// see through them.

namespace {

std::atomic<std::int64_t> calls{0};

}  // namespace

namespace athanor::test {

std::int64_t news() {
  return calls.load();
}

}  // namespace athanor::test

void* operator new(std::size_t bytes) {
  calls.fetch_add(1, std::memory_order_relaxed);
  if (void* block = std::malloc(bytes == 0 ? 1 : bytes)) return block;
  throw std::bad_alloc();
}
void* operator new[](std::size_t bytes) {
  return operator new(bytes);
}
void operator delete(void* block) noexcept {
  std::free(block);
}
void operator delete[](void* block) noexcept {
  std::free(block);
}
void operator delete(void* block, std::size_t) noexcept {
  std::free(block);
}
void operator delete[](void* block, std::size_t) noexcept {
  std::free(block);
}
