#pragma once

#include <mutex>

#include "tensor/allocator.h"
#include "tensor/cuda/capture.h"
#include "tensor/cuda/chunks.h"
#include "tensor/detail/stream_state.h"
#include "tensor/detail/tags.h"

namespace athanor::cuda {

/// Caching allocator of one device.
///
/// cudaMalloc costs tens of microseconds and cudaFree waits for the whole device, so freed memory is cached.
/// A tensor may free memory long before the device has finished using it. A block belongs to the stream that
/// was current at its creation; that stream's next tensor may reuse it at once, since a stream executes in
/// order. A block that another stream also uses (record_stream) is parked until that stream has passed the
/// point of the free.
///
/// Blocks up to 1 MiB are cut from segments of 2 MiB, larger ones from segments of 20 MiB or, from 10 MiB on,
/// of their own size. The allocator takes the best fit, splits it if the remainder is useful, and merges
/// freed neighbours: less than an eighth of a block over 4 KiB is wasted.
class DeviceAllocator final : public Allocator {
 public:
  enum class Blocks : std::uint8_t {
    cached,
    /// One cudaMalloc of exactly the requested size per block, freed once the stream has finished with it:
    /// for tools that track the system's allocations and cannot see inside a segment.
    exact,
  };

  DeviceAllocator(Device device, Blocks blocks);
  /// Waits for the device. All blocks must have been freed.
  ~DeviceAllocator() override;

  Block allocate(std::size_t bytes) override;
  void free(const Block& block) noexcept override;
  AllocatorStats stats() const override;
  void reset_peak() override;
  void set_limit(std::size_t bytes) override;
  void trim() override;

  /// See athanor::record_stream.
  void record_stream(const Block& block, const Stream& stream);

  // For GraphMemory.
  void enter(Pool& pool);
  void dissolve(Pool& pool) noexcept;
  std::int64_t held(const Pool& pool) const;
  std::uint64_t in_use(const Pool& pool) const;

 private:
  struct Request {
    std::size_t bytes;  // as requested
    std::size_t size;   // of the chunk
    bool small;
  };
  Request request_of(std::size_t bytes) const;
  Pool& pool_of_thread();

  Chunk* find(Pool& pool, std::uint32_t stream_id, const Request& request);
  Chunk& grow(Pool& pool, const athanor::detail::StreamState& stream, const Request& request);
  Segment* add_segment(Pool& pool, const athanor::detail::StreamState& stream, std::size_t bytes, bool small);
  void* system_allocate(std::size_t bytes);
  void split(Chunk& chunk, const Request& request);

  void put_back(Chunk& chunk) noexcept;
  void insert_free(Chunk& chunk) noexcept;
  void erase_free(Chunk& chunk) noexcept;
  Chunk& absorb_next(Chunk& chunk) noexcept;
  void remove_segment(Segment& segment) noexcept;

  void add_use(Chunk& chunk, cudaStream_t stream, std::uint32_t stream_id);
  void park(Chunk& chunk) noexcept;
  void reclaim(Pool& pool, bool wait) noexcept;
  void release_cached();
  [[noreturn]] void out_of_memory(const Request& request) const;
  [[noreturn]] void refuse_in_capture(const Request& request) const;

  const Device device_;
  const bool exact_;
  mutable std::mutex mutex_;
  Pool shared_;
  Table<Chunk> chunks_;
  Table<Segment> segments_;
  athanor::detail::Usage usage_;
};

/// The allocator of a device, one per process.
DeviceAllocator& device_allocator_of(Device device);

/// Sets the pool of this thread's allocations on a device, and returns the previous one; null: the shared
/// one.
Pool* exchange_active_pool(Device device, Pool* active);

}  // namespace athanor::cuda
