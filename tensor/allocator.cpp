// Explained in docs/emptying_the_cache.md.
#include "tensor/allocator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "tensor/base/error.h"
#include "tensor/detail/device_memory.h"
#include "tensor/detail/fresh_memory.h"
#include "tensor/detail/tags.h"

namespace athanor {
namespace {

// Host memory --------------------------------------------------------------------------------------------

constexpr std::size_t kHugePage = 2 * 1024 * 1024;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMaxTiny = 64 * 1024;
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

/// Small blocks are cut from 2 MiB slabs and cached on one list per size class; tiny ones, which often live
/// long, have slabs of their own. Large ones are separate mappings, cached in a list sorted by size and
/// reused if at most a quarter is wasted. At the limit, what is cached is returned: large blocks and slabs
/// without a live block. If that is not enough, a small request gets any piece that is large enough.
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
    return usage_.stats(largest_free());
  }

  void reset_peak() override {
    std::lock_guard lock(mutex_);
    usage_.reset_peak();
  }

  void set_limit(std::size_t bytes) override {
    std::lock_guard lock(mutex_);
    usage_.set_limit(bytes);
  }

  void trim() override {
    std::lock_guard lock(mutex_);
    trim_all();
  }

 private:
  struct FreeBlock {
    FreeBlock* next;
  };
  struct Mapping {
    void* data;
    std::size_t bytes;
  };
  struct Slab {
    std::uintptr_t begin;
    std::size_t lost = 0;  // bytes that are in no block
    std::size_t free = 0;  // known while trim_slabs() runs

    bool is_free() const { return free == kHugePage; }
  };

  Block take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    Block block = bytes <= kMaxSmall ? take_small(bytes) : take_large(bytes);
    block.tag = detail::current_tag;
    usage_.charge(block.bytes, block.tag);
    return block;
  }

  // The part of a slab that has not been cut into blocks yet.
  struct Uncut {
    char* begin = nullptr;
    std::size_t bytes = 0;

    void* cut(std::size_t size) {
      bytes -= size;
      return std::exchange(begin, begin + size);
    }
  };

  Block take_small(std::size_t bytes) {
    const std::size_t index = class_of(bytes), size = class_bytes(index);
    if (small_[index]) return pop_small(index);
    Uncut& uncut = size <= kMaxTiny ? tiny_uncut_ : small_uncut_;
    if (uncut.bytes < size) {
      cut_up(uncut);
      if (!make_room(kHugePage)) {
        if (const Block spare = take_spare(index); spare.data) return spare;
      }
      slabs_.reserve(slabs_.size() + 1);
      uncut = {static_cast<char*>(grow(kHugePage, bytes)), kHugePage};
      const auto begin = reinterpret_cast<std::uintptr_t>(uncut.begin);
      slabs_.insert(std::ranges::upper_bound(slabs_, begin, {}, &Slab::begin), Slab{begin});
    }
    return {uncut.cut(size), size, 0};
  }

  // A null block if there is none.
  Block take_spare(std::size_t index) {
    for (std::size_t larger = index; larger < kSmallClasses; ++larger) {
      if (small_[larger]) return pop_small(larger);
    }
    for (Uncut* uncut : {&tiny_uncut_, &small_uncut_}) {
      if (uncut->bytes >= class_bytes(index)) return {uncut->cut(class_bytes(index)), class_bytes(index), 0};
    }
    return {};
  }

  // Into the largest blocks that fit; no tiny one from a slab of larger ones.
  void cut_up(Uncut& uncut) {
    const std::size_t least = &uncut == &tiny_uncut_ ? kAlignment : class_bytes(class_of(kMaxTiny) + 1);
    while (uncut.bytes >= least) {
      std::size_t rest = class_of(std::min(uncut.bytes, kMaxSmall));
      if (class_bytes(rest) > uncut.bytes) --rest;
      push_small(rest, uncut.cut(class_bytes(rest)));
    }
    if (uncut.bytes > 0) slab_of(uncut.begin).lost = std::exchange(uncut.bytes, 0);
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

  void push_small(std::size_t index, void* data) {
    auto* block = static_cast<FreeBlock*>(data);
    block->next = small_[index];
    small_[index] = block;
  }

  Block pop_small(std::size_t index) {
    FreeBlock* const block = small_[index];
    small_[index] = block->next;
    return {block, class_bytes(index), 0};
  }

  void* grow(std::size_t bytes, std::size_t asked) {
    if (!make_room(bytes)) out_of_memory(asked, fmt::format("the limit of {} bytes", usage_.limit()));
    void* data = map_pages(bytes);
    if (!data) {
      trim_all();
      data = map_pages(bytes);
    }
    if (!data) out_of_memory(asked, std::strerror(errno));
    usage_.grew(bytes);
    return data;
  }

  // Whether the limit leaves room for so many more bytes, if need be after the cache was returned.
  bool make_room(std::size_t bytes) {
    if (usage_.has_room(bytes)) return true;
    trim_all();
    return usage_.has_room(bytes);
  }

  void trim_all() {
    trim_large();
    trim_slabs();
  }

  // A slab is free if all its bytes are: those of its blocks, those that are not cut yet, and the lost ones.
  void trim_slabs() {
    for (Slab& slab : slabs_) slab.free = slab.lost;
    for (Uncut* uncut : {&tiny_uncut_, &small_uncut_}) {
      if (uncut->bytes > 0) slab_of(uncut->begin).free += uncut->bytes;
    }
    for (std::size_t index = 0; index < kSmallClasses; ++index) {
      for (const FreeBlock* block = small_[index]; block; block = block->next)
        slab_of(block).free += class_bytes(index);
    }
    for (Uncut* uncut : {&tiny_uncut_, &small_uncut_}) {
      if (uncut->bytes > 0 && slab_of(uncut->begin).is_free()) *uncut = {};
    }
    for (FreeBlock*& list : small_) {
      FreeBlock** at = &list;
      while (*at) {
        if (slab_of(*at).is_free())
          *at = (*at)->next;
        else
          at = &(*at)->next;
      }
    }
    for (const Slab& slab : slabs_) {
      if (!slab.is_free()) continue;
      ::munmap(reinterpret_cast<void*>(slab.begin), kHugePage);
      usage_.shrank(kHugePage);
    }
    std::erase_if(slabs_, [](const Slab& slab) { return slab.is_free(); });
  }

  Slab& slab_of(const void* block) {
    const auto begin = reinterpret_cast<std::uintptr_t>(block) / kHugePage * kHugePage;
    return *std::ranges::lower_bound(slabs_, begin, {}, &Slab::begin);
  }

  void trim_large() {
    for (const Mapping& mapping : large_) {
      ::munmap(mapping.data, mapping.bytes);
      usage_.shrank(mapping.bytes);
      --large_mapped_;
    }
    large_.clear();
  }

  std::size_t largest_free() const {
    if (!large_.empty()) return large_.back().bytes;
    std::size_t largest = std::min(std::max(tiny_uncut_.bytes, small_uncut_.bytes), kMaxSmall);
    for (std::size_t index = 0; index < kSmallClasses; ++index) {
      if (small_[index]) largest = std::max(largest, class_bytes(index));
    }
    return largest;
  }

  [[noreturn]] void out_of_memory(std::size_t asked, std::string_view why) const {
    detail::fail<OutOfMemoryError>(
        "out of memory on cpu: requested {} bytes, but {} are held and {} cached ({}); by tag: {}; use a "
        "smaller batch or raise --memory-limit",
        asked, usage_.current(), usage_.cached(), why, usage_.holders());
  }

  mutable std::mutex mutex_;
  std::array<FreeBlock*, kSmallClasses> small_{};
  Uncut tiny_uncut_, small_uncut_;
  std::vector<Slab> slabs_;  // sorted
  std::vector<Mapping> large_;
  std::size_t large_mapped_ = 0;
  detail::Usage usage_;
};

}  // namespace

constinit std::atomic<bool> detail::fill_fresh_memory{false};

Allocator& allocator_of(Device device) {
  if (!device.is_cpu()) return detail::device_allocator(device);
  static CpuAllocator* const cpu = new CpuAllocator;  // never destroyed: tensors are freed during exit, too
  return *cpu;
}

}  // namespace athanor
