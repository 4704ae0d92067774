#include "tests/support/count_new.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include <link.h>

#if defined(__clang__) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))

namespace athanor::test {

std::int64_t operator_news() {
  return 0;
}
bool counts_operator_news() {
  return false;
}

}  // namespace athanor::test

#else

// Replaces the global operators of the binary it is linked into, in a file of its own: the compiler must not
// see through them.

namespace {

std::atomic<std::int64_t> calls{0};

/// Where oneDNN's code lies: what it allocates inside its own execute() is not ours to change.
struct Range {
  std::uintptr_t begin = 0, end = 0;
};
Range find_onednn() {
  Range range;
  const auto look = [](dl_phdr_info* info, std::size_t, void* to) {
    if (!std::strstr(info->dlpi_name, "libdnnl")) return 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& segment = info->dlpi_phdr[i];
      if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
      const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
      *static_cast<Range*>(to) = {begin, begin + segment.p_memsz};
    }
    return 1;
  };
  dl_iterate_phdr(look, &range);
  return range;
}
const Range onednn = find_onednn();

void* counted(std::size_t bytes, std::size_t alignment, void* caller) {
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  if (address < onednn.begin || address >= onednn.end) calls.fetch_add(1, std::memory_order_relaxed);
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes > 0 ? bytes : 1);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* counted_or_throw(std::size_t bytes, std::size_t alignment, void* caller) {
  if (void* block = counted(bytes, alignment, caller)) return block;
  throw std::bad_alloc();
}

}  // namespace

namespace athanor::test {

std::int64_t operator_news() {
  return calls.load(std::memory_order_relaxed);
}
bool counts_operator_news() {
  return true;
}

}  // namespace athanor::test

void* operator new(std::size_t bytes) {
  return counted_or_throw(bytes, 1, __builtin_return_address(0));
}
void* operator new[](std::size_t bytes) {
  return counted_or_throw(bytes, 1, __builtin_return_address(0));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted_or_throw(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted_or_throw(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes, 1, __builtin_return_address(0));
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes, 1, __builtin_return_address(0));
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
void operator delete(void* block, std::align_val_t) noexcept {
  std::free(block);
}
void operator delete[](void* block, std::align_val_t) noexcept {
  std::free(block);
}
void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  std::free(block);
}
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept {
  std::free(block);
}

#endif
