#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tensor/base/pool.h"
#include "tensor/cuda/runtime.h"
#include "tensor/stream.h"

// The building blocks of the device allocator. A segment is one cudaMalloc; adjacent chunks divide it without
// gaps. All guarded by the allocator's lock.

namespace athanor::cuda {

class DeviceAllocator;
struct Pool;
struct Segment;

/// Another stream that uses a chunk; after the chunk is freed, `event` marks the end of that use.
struct Use {
  cudaStream_t stream;
  std::uint32_t stream_id;
  Event event;
  bool marked = false;
};

struct Chunk {
  enum class State : std::uint8_t { spare, live, parked, free };

  std::byte* data = nullptr;
  std::size_t bytes = 0;
  Segment* segment = nullptr;
  Chunk *before = nullptr, *after = nullptr;   // neighbours in the segment
  Chunk *previous = nullptr, *next = nullptr;  // in the list for this state
  PoolVector<Use> uses;
  std::uint32_t index = 0;
  State state = State::spare;
};

struct Segment {
  Chunk* first = nullptr;
  Pool* pool = nullptr;
  cudaStream_t stream = nullptr;
  std::uint32_t stream_id = 0;
  bool small = false;
  std::size_t bytes = 0;
  Segment *previous = nullptr, *next = nullptr;  // in the pool's list
  std::uint32_t index = 0;
};

/// Sums of these differ for different sets of chunks, but for bad luck.
inline std::uint64_t identify(const Chunk& chunk) {
  const std::uint64_t bits =
      (reinterpret_cast<std::uintptr_t>(chunk.data) ^ chunk.bytes << 48) * 0x9e3779b97f4a7c15u;
  return bits ^ bits >> 29;
}

/// Objects at stable addresses, found by number and reused. They are made in pages, so a warmed-up allocator
/// creates none.
template <class T> class Table {
 public:
  T& take() {
    if (!spare_) {
      pages_.push_back(std::make_unique<std::array<T, kPage>>());
      for (std::size_t i = kPage; i-- > 0;) {
        T& object = (*pages_.back())[i];
        object.index = static_cast<std::uint32_t>((pages_.size() - 1) * kPage + i);
        give_back(object);
      }
    }
    T& object = *spare_;
    spare_ = object.next;
    object.next = nullptr;
    return object;
  }
  void give_back(T& object) noexcept {
    object.next = spare_;
    spare_ = &object;
  }
  T& at(std::uint32_t index) { return (*pages_[index / kPage])[index % kPage]; }

 private:
  static constexpr std::size_t kPage = 256;
  std::vector<std::unique_ptr<std::array<T, kPage>>> pages_;
  T* spare_ = nullptr;
};

/// Free chunks, one list per size class: eight classes per octave, so that a search visits few.
class FreeLists {
 public:
  void insert(Chunk& chunk) noexcept {
    const std::size_t bin = bin_of(chunk.bytes);
    chunk.previous = nullptr;
    chunk.next = heads_[bin];
    if (chunk.next) chunk.next->previous = &chunk;
    heads_[bin] = &chunk;
    used_[bin / 64] |= std::uint64_t{1} << bin % 64;
  }

  void erase(Chunk& chunk) noexcept {
    const std::size_t bin = bin_of(chunk.bytes);
    (chunk.previous ? chunk.previous->next : heads_[bin]) = chunk.next;
    if (chunk.next) chunk.next->previous = chunk.previous;
    if (!heads_[bin]) used_[bin / 64] &= ~(std::uint64_t{1} << bin % 64);
  }

  /// The smallest chunk of at least `bytes`; ties go to the lowest address; null if there is none.
  Chunk* best_fit(std::size_t bytes) const {
    for (std::size_t bin = next_used(bin_of(bytes)); bin < kBins; bin = next_used(bin + 1)) {
      Chunk* best = nullptr;
      for (Chunk* chunk = heads_[bin]; chunk; chunk = chunk->next) {
        if (chunk->bytes < bytes) continue;
        if (!best || chunk->bytes < best->bytes || (chunk->bytes == best->bytes && chunk->data < best->data))
          best = chunk;
      }
      if (best) return best;
    }
    return nullptr;
  }

  std::size_t largest() const {
    std::size_t largest = 0;
    for (std::size_t bin = kBins; bin-- > 0 && largest == 0;) {
      for (const Chunk* chunk = heads_[bin]; chunk; chunk = chunk->next)
        largest = std::max(largest, chunk->bytes);
    }
    return largest;
  }

 private:
  static constexpr std::size_t kWords = 5, kBins = kWords * 64;  // sizes up to 2^48 bytes end in bin 311

  static std::size_t bin_of(std::size_t bytes) {
    const std::size_t units = bytes / 512;
    if (units < 8) return units;
    const auto width = static_cast<std::size_t>(std::bit_width(units));
    return (width - 3) * 8 + ((units >> (width - 4)) & 7);
  }

  std::size_t next_used(std::size_t bin) const {
    if (bin >= kBins) return kBins;
    std::uint64_t word = used_[bin / 64] >> bin % 64 << bin % 64;
    for (std::size_t at = bin / 64;;) {
      if (word) return at * 64 + static_cast<std::size_t>(std::countr_zero(word));
      if (++at == kWords) return kBins;
      word = used_[at];
    }
  }

  std::array<Chunk*, kBins> heads_{};
  std::array<std::uint64_t, kWords> used_{};
};

/// The source of one kind of allocations: shared, or of captured graphs.
struct Pool {
  struct Lists {
    FreeLists small, large;
  };

  FreeLists& lists(std::uint32_t stream_id, bool small) {
    if (stream_id >= by_stream.size()) by_stream.resize(stream_id + 1);
    if (!by_stream[stream_id]) by_stream[stream_id] = std::make_unique<Lists>();
    return small ? by_stream[stream_id]->small : by_stream[stream_id]->large;
  }

  std::vector<std::unique_ptr<Lists>> by_stream;  // a block is only reused on its own stream
  Segment* segments = nullptr;
  Chunk *parked_first = nullptr, *parked_last = nullptr;  // freed, but other streams may still use them
  std::int64_t held = 0;                                  // bytes
  std::uint64_t in_use = 0;                               // sum of identify() over live chunks
  DeviceAllocator* graph = nullptr;                       // whose it is, if of graphs; else shared
};

}  // namespace athanor::cuda
