#pragma once

#include <cstddef>

#include "tensor/pool.h"
#include "tensor/ref.h"
#include "tensor/stream.h"

namespace athanor::cuda {

/// Page-locked host memory. Its last reference gives it back to the pool, which hands it out again when the
/// streams that were recorded are done with it.
class PinnedBlock final : public RefCounted {
 public:
  PinnedBlock(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// `stream` uses the block until what is queued there when the block is given back is done.
  void record(const Stream& stream);

 private:
  friend class PinnedPool;
  struct Use {
    Stream stream;
    Event event;
  };

  void dispose() noexcept override;
  bool idle() const;
  void wait() const;

  void* const data_;
  const std::size_t bytes_;
  PoolVector<Use> uses_;
  bool broken_ = false;  // no mark could be set: nobody knows when it is idle
};

/// A block of exactly that size, which may hold anything. Throws OutOfMemoryError; Error where there is none
/// and this thread captures a graph.
Ref<PinnedBlock> take_pinned(std::size_t bytes);

/// Records a stream for the pinned block that host memory is part of; false where it is part of none.
bool record_if_pinned(const void* data, const Stream& stream);

}  // namespace athanor::cuda
