#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>

#include "simt/emulator/plain_memory.h"

namespace simt::race {

/// Which op touched some memory, and when. `op` 0: none.
struct Stamp {
  std::uint32_t op = 0;     ///< number of the launch or copy
  std::uint32_t block = 0;  ///< number of the block in its grid
  std::uint32_t block_epoch = 0, lane_epoch = 0;
  std::uint64_t pc : 48 = 0;      ///< the access's return address
  std::uint64_t thread : 12 = 0;  ///< or an agent: see block_order.h
  std::uint64_t wrote : 1 = 0;    ///< among a cell's reads: a plain write that an atomic one came after
  std::uint64_t atomic : 1 = 0;
  std::uint64_t under_way : 1 = 0;  ///< asynchronous, and not yet waited for
  std::uint64_t by_proxy : 1 = 0;   ///< through the asynchronous proxy

  bool same_thread(const Stamp& other) const {
    return op == other.op && block == other.block && thread == other.thread;
  }
};

/// The last write to some bytes, and reads since then of which none is before another. Three of them are
/// kept; of more, those that differ most. Atomic writes are no race with each other, so one of them does not
/// stand for what came before it: that stays among the reads.
struct Cell {
  static constexpr int kReads = 3;
  Stamp write;
  std::array<Stamp, kReads> reads;
};

/// A cell for every 4 bytes of memory, or for every byte where somebody accesses less than 4 or does so
/// across cells; in pages that are made when they are touched.
class Shadow {
 public:
  /// Calls f(cell) for every cell of the range.
  template <class F> void for_each(const char* begin, std::size_t bytes, F&& f) {
    auto at = reinterpret_cast<std::uintptr_t>(begin);
    const auto end = at + bytes;
    const bool coarse = (at | bytes) % kCoarse == 0;
    while (at < end) {
      Page& page = page_of(at);
      if (!coarse && !page.fine) split(page);
      const std::uintptr_t page_end = (at / kPageBytes + 1) * kPageBytes;
      const std::uintptr_t stop = end < page_end ? end : page_end;
      const std::size_t step = page.fine ? 1 : kCoarse;
      for (; at < stop; at += step) f(page.cells[at % kPageBytes / step]);
    }
  }
  void forget(const char* begin, std::size_t bytes);

 private:
  static constexpr std::size_t kPageBytes = 1024, kCoarse = 4;

  struct Page {
    Vector<Cell> cells;
    bool fine = false;
  };

  Page& page_of(std::uintptr_t address) {
    const std::uintptr_t key = address / kPageBytes;
    Page*& recent = recent_[key % kRecent].page;
    if (recent_[key % kRecent].key != key) {
      recent = &make_page(key);
      recent_[key % kRecent].key = key;
    }
    return *recent;
  }
  Page& make_page(std::uintptr_t key);
  void split(Page& page);

  static constexpr std::size_t kRecent = 64;
  struct Recent {
    std::uintptr_t key = 0;
    Page* page = nullptr;
  };
  std::array<Recent, kRecent> recent_{};
  using Entry = std::pair<const std::uintptr_t, Page>;
  std::unordered_map<std::uintptr_t, Page, std::hash<std::uintptr_t>, std::equal_to<>, MallocAllocator<Entry>>
      pages_;
};

}  // namespace simt::race
