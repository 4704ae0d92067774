#include "tensor/base/pool.h"

#include <array>
#include <mutex>
#include <new>
#include <utility>

namespace athanor {
namespace {

constexpr std::size_t kStep = 64;
constexpr std::size_t kClasses = kMaxPooledBytes / kStep;
constexpr std::size_t kChunkBytes = 64 * 1024;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kPooled = false;  // so that AddressSanitizer sees every use after free
#else
constexpr bool kPooled = true;
#endif

struct FreeBlock {
  FreeBlock* next;
};
using FreeLists = std::array<FreeBlock*, kClasses>;

// Chunks are never returned to the system, since a block may outlive the thread that cut it. A thread that
// ends leaves its lists here, and a thread with empty lists looks here first.
struct Orphans {
  std::mutex mutex;
  FreeLists lists{};
};

Orphans& orphans() {
  static Orphans* const instance = new Orphans;  // never destroyed: objects are freed during exit, too
  return *instance;
}

struct ThreadLists {
  FreeLists lists{};
  bool alive = true;

  ~ThreadLists() {
    alive = false;
    std::lock_guard lock(orphans().mutex);
    for (std::size_t i = 0; i < kClasses; ++i) {
      while (FreeBlock* block = lists[i]) {
        lists[i] = block->next;
        block->next = orphans().lists[i];
        orphans().lists[i] = block;
      }
    }
  }
};

thread_local ThreadLists thread_lists;

FreeBlock* refill(std::size_t index) {
  {
    std::lock_guard lock(orphans().mutex);
    if (FreeBlock* list = std::exchange(orphans().lists[index], nullptr)) return list;
  }
  const std::size_t bytes = (index + 1) * kStep;
  char* chunk = static_cast<char*>(::operator new (kChunkBytes, std::align_val_t{kStep}));
  FreeBlock* list = nullptr;
  for (std::size_t at = kChunkBytes / bytes; at-- > 0;) {
    auto* block = reinterpret_cast<FreeBlock*>(chunk + at * bytes);
    block->next = list;
    list = block;
  }
  return list;
}

}  // namespace

void* pool_allocate(std::size_t bytes) {
  if (!kPooled || bytes > kMaxPooledBytes || bytes == 0) return ::operator new(bytes);
  const std::size_t index = (bytes - 1) / kStep;
  FreeBlock*& head = thread_lists.lists[index];
  if (!head) head = refill(index);
  FreeBlock* block = head;
  head = block->next;
  return block;
}

void pool_free(void* pointer, std::size_t bytes) noexcept {
  if (!kPooled || bytes > kMaxPooledBytes || bytes == 0) return ::operator delete(pointer);
  const std::size_t index = (bytes - 1) / kStep;
  auto* block = static_cast<FreeBlock*>(pointer);
  if (!thread_lists.alive) [[unlikely]] {  // a thread-local or static object freed after this thread's lists
    std::lock_guard lock(orphans().mutex);
    block->next = orphans().lists[index];
    orphans().lists[index] = block;
    return;
  }
  block->next = thread_lists.lists[index];
  thread_lists.lists[index] = block;
}

}  // namespace athanor
