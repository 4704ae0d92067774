#include "tensor/allocator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

#include <sys/mman.h>

#include "tensor/detail/device_memory.h"
#include "tensor/detail/fresh_memory.h"
#include "tensor/detail/tags.h"
#include "tensor/error.h"

namespace athanor {
namespace {

// Host memory --------------------------------------------------------------------------------------------

constexpr std::size_t kHugePage = 2 * 1024 * 1024;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMaxSmall = 1024 * 1024;
constexpr std::size_t kMaxFilled = 64 * 1024 * 1024;  // larger blocks may be mostly unused in tests
constexpr std::size_t kSmallClasses = 16 + 8 * 10;  // 64-byte steps to 1 KiB, then 8 steps an octave to 1 MiB

constexpr std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

// Size classes keep the waste of a small block under 1/8.
std::size_t class_of(std::size_t bytes) {
  if (bytes <= 1024) return (bytes + kAlignment - 1) / kAlignment - 1;
  const std::size_t octave = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;  // 2^octave < bytes
  const std::size_t step = ((bytes - 1) >> (octave - 3)) & 7;
  return 16 + (octave - 10) * 8 + step;
}

std::size_t class_bytes(std::size_t index) {
  if (index < 16) return (index + 1) * kAlignment;
  const std::size_t octave = (index - 16) / 8 + 10, step = (index - 16) % 8;
  return (8 + step + 1) << (octave - 3);
}

// A 2 MiB-aligned mapping with huge pages advised: first touch costs 5x less, TLB misses nearly vanish.
void* map_pages(std::size_t bytes) {
  const std::size_t reserved = bytes + kHugePage;
  void* raw =
      ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t aligned = round_up(begin, kHugePage);
  if (aligned > begin) ::munmap(raw, aligned - begin);
  const std::uintptr_t end = begin + reserved;
  if (end > aligned + bytes) ::munmap(reinterpret_cast<void*>(aligned + bytes), end - aligned - bytes);
  ::madvise(reinterpret_cast<void*>(aligned), bytes, MADV_HUGEPAGE);
  return reinterpret_cast<void*>(aligned);
}

/// Small blocks are cut from 2 MiB slabs and cached on one list per size class. Large ones are separate
/// mappings, cached in a list sorted by size and reused if at most a quarter is wasted.
class CpuAllocator final : public Allocator {
 public:
  Block allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, 0, detail::current_tag};
    const Block block = take(bytes);
    if (detail::fill_fresh_memory.load(std::memory_order_relaxed))
      std::memset(block.data, 0xff, std::min(bytes, kMaxFilled));
    return block;
  }

  void free(const Block& block) noexcept override {
    if (!block.data) return;
    std::lock_guard lock(mutex_);
    usage_.release(block.bytes, block.tag);
    if (block.bytes <= kMaxSmall) {
      push_small(class_of(block.bytes), block.data);
    } else {
      const auto at = std::lower_bound(large_.begin(), large_.end(), block.bytes,
                                       [](const Mapping& m, std::size_t size) { return m.bytes < size; });
      large_.insert(at, {block.data, block.bytes});  // capacity was reserved when the block was mapped
    }
  }

  AllocatorStats stats() const override {
    std::lock_guard lock(mutex_);
    return {usage_.current(), usage_.peak(),   held_ - usage_.current(), largest_free(),
            growths_,         usage_.by_tag(), usage_.peak_by_tag()};
  }

  void reset_peak() override {
    std::lock_guard lock(mutex_);
    usage_.reset_peak();
  }

  void set_limit(std::size_t bytes) override {
    std::lock_guard lock(mutex_);
    limit_ = static_cast<std::int64_t>(bytes);
  }

  void trim() override {
    std::lock_guard lock(mutex_);
    trim_large();
  }

 private:
  struct FreeBlock {
    FreeBlock* next;
  };
  struct Mapping {
    void* data;
    std::size_t bytes;
  };

  Block take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    Block block = bytes <= kMaxSmall ? take_small(bytes) : take_large(bytes);
    block.tag = detail::current_tag;
    usage_.charge(block.bytes, block.tag);
    return block;
  }

  Block take_small(std::size_t bytes) {
    const std::size_t index = class_of(bytes), size = class_bytes(index);
    if (FreeBlock* block = small_[index]) {
      small_[index] = block->next;
      return {block, size, 0};
    }
    if (slab_left_ < size) {
      // Cuts the rest of the old slab into the largest blocks that fit, so that nothing is lost.
      while (slab_left_ >= kAlignment) {
        std::size_t rest = class_of(std::min(slab_left_, kMaxSmall));
        if (class_bytes(rest) > slab_left_) --rest;
        push_small(rest, carve(class_bytes(rest)));
      }
      slab_ = static_cast<char*>(grow(kHugePage, bytes));
      slab_left_ = kHugePage;
    }
    return {carve(size), size, 0};
  }

  Block take_large(std::size_t bytes) {
    const std::size_t size = round_up(bytes, kHugePage);
    const auto found =
        std::lower_bound(large_.begin(), large_.end(), size,
                         [](const Mapping& m, std::size_t wanted) { return m.bytes < wanted; });
    if (found != large_.end() && found->bytes <= size + size / 4) {
      const Mapping mapping = *found;
      large_.erase(found);
      return {mapping.data, mapping.bytes, 0};
    }
    void* data = grow(size, bytes);
    large_.reserve(++large_mapped_);
    return {data, size, 0};
  }

  void* carve(std::size_t bytes) {
    char* block = slab_;
    slab_ += bytes;
    slab_left_ -= bytes;
    return block;
  }

  void push_small(std::size_t index, void* data) {
    auto* block = static_cast<FreeBlock*>(data);
    block->next = small_[index];
    small_[index] = block;
  }

  void* grow(std::size_t bytes, std::size_t asked) {
    const auto growth = static_cast<std::int64_t>(bytes);
    if (limit_ > 0 && held_ + growth > limit_) trim_large();
    if (limit_ > 0 && held_ + growth > limit_)
      out_of_memory(asked, fmt::format("the limit of {} bytes", limit_));
    void* data = map_pages(bytes);
    if (!data) {
      trim_large();
      data = map_pages(bytes);
    }
    if (!data) out_of_memory(asked, std::strerror(errno));
    held_ += growth;
    ++growths_;
    return data;
  }

  void trim_large() {
    for (const Mapping& mapping : large_) {
      ::munmap(mapping.data, mapping.bytes);
      held_ -= static_cast<std::int64_t>(mapping.bytes);
      --large_mapped_;
    }
    large_.clear();
  }

  std::int64_t largest_free() const {
    if (!large_.empty()) return static_cast<std::int64_t>(large_.back().bytes);
    std::size_t largest = std::min(slab_left_, kMaxSmall);
    for (std::size_t index = 0; index < kSmallClasses; ++index) {
      if (small_[index]) largest = std::max(largest, class_bytes(index));
    }
    return static_cast<std::int64_t>(largest);
  }

  [[noreturn]] void out_of_memory(std::size_t asked, std::string_view why) const {
    detail::fail<OutOfMemoryError>(
        "out of memory on cpu: requested {} bytes, but {} are held and {} cached ({}); by tag: {}; use a "
        "smaller batch or raise --memory-limit",
        asked, usage_.current(), held_ - usage_.current(), why, usage_.holders());
  }

  mutable std::mutex mutex_;
  std::array<FreeBlock*, kSmallClasses> small_{};
  char* slab_ = nullptr;
  std::size_t slab_left_ = 0;
  std::vector<Mapping> large_;
  std::size_t large_mapped_ = 0;
  detail::Usage usage_;
  std::int64_t held_ = 0, growths_ = 0, limit_ = 0;
};

}  // namespace

constinit std::atomic<bool> detail::fill_fresh_memory{false};

Allocator& allocator_of(Device device) {
  if (!device.is_cpu()) return detail::device_allocator(device);
  static CpuAllocator* const cpu = new CpuAllocator;  // never destroyed: tensors are freed during exit, too
  return *cpu;
}

}  // namespace athanor
