#pragma once

#include <cstddef>

#include "tensor/base/pool.h"
#include "tensor/base/ref.h"
#include "tensor/stream.h"

namespace athanor::cuda {

/// Page-locked host memory. Releasing the last reference returns it to the pool, which reuses it once the
/// recorded streams have finished with it.
class PinnedBlock final : public RefCounted {
 public:
  PinnedBlock(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// `stream` uses the block until its queue at the block's release is done.
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
  bool broken_ = false;  // no event could be recorded, so it never counts as idle
};

/// An uninitialised block of exactly that size. Throws OutOfMemoryError, or Error if there is none and this
/// thread captures a graph.
Ref<PinnedBlock> take_pinned(std::size_t bytes);

/// Records a stream for the pinned block that contains `data`; false if there is none.
bool record_if_pinned(const void* data, const Stream& stream);

}  // namespace athanor::cuda
