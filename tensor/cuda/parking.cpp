#include <algorithm>
#include <utility>

#include "tensor/base/error.h"
#include "tensor/cuda/allocator.h"

// The part of DeviceAllocator for several streams: blocks freed while another stream still uses them, and the
// pools of captured graphs.

namespace athanor::cuda {

// Other streams --------------------------------------------------------------------------------------------

void DeviceAllocator::record_stream(const Block& block, const Stream& stream) {
  if (!block.data) return;
  const std::lock_guard lock(mutex_);
  Chunk& chunk = chunks_.at(block.index);
  if (stream.id() != chunk.segment->stream_id)
    add_use(chunk, static_cast<cudaStream_t>(stream.native()), stream.id());
}

void DeviceAllocator::add_use(Chunk& chunk, cudaStream_t stream, std::uint32_t stream_id) {
  const auto same = [&](const Use& use) { return use.stream_id == stream_id; };
  if (std::any_of(chunk.uses.begin(), chunk.uses.end(), same)) return;
  chunk.uses.push_back({stream, stream_id, Event(device_)});
}

namespace {

cudaEvent_t native(const Use& use) {
  return static_cast<cudaEvent_t>(use.event.native());
}

// Records an event now, unless it would become part of a graph; then later.
void mark(Use& use) noexcept {
  if (use.marked || may_be_capturing(use.stream)) return;
  use.marked = cudaEventRecord(native(use), use.stream) == cudaSuccess;  // else retried before reuse
}

}  // namespace

void DeviceAllocator::park(Chunk& chunk) noexcept {
  for (Use& use : chunk.uses) mark(use);
  Pool& pool = *chunk.segment->pool;
  chunk.state = Chunk::State::parked;
  chunk.next = nullptr;
  (pool.parked_first ? pool.parked_last->next : pool.parked_first) = &chunk;
  pool.parked_last = &chunk;
}

// Frees the parked chunks that no stream uses any more, oldest first.
void DeviceAllocator::reclaim(Pool& pool, bool wait) noexcept {
  // Streams that have not passed an older event, and so no later one: a bit each, with collisions.
  std::uint64_t busy = 0;
  const auto done = [&](Use& use) {
    const std::uint64_t bit = std::uint64_t{1} << use.stream_id % 64;
    if (busy & bit) return false;
    mark(use);
    if (!use.marked) return false;
    const cudaError_t status = wait ? cudaEventSynchronize(native(use)) : cudaEventQuery(native(use));
    if (status == cudaSuccess) return true;
    // Any other error is from earlier work, and stays pending for the next wait.
    if (status == cudaErrorNotReady) cudaGetLastError();
    busy |= bit;
    return false;
  };
  Chunk* chunk = std::exchange(pool.parked_first, nullptr);
  pool.parked_last = nullptr;
  while (chunk) {
    Chunk& candidate = *std::exchange(chunk, chunk->next);
    if (std::all_of(candidate.uses.begin(), candidate.uses.end(), done)) {
      put_back(candidate);
    } else {
      park(candidate);
    }
  }
}

// Pools of graphs ------------------------------------------------------------------------------------------

void DeviceAllocator::enter(Pool& pool) {
  const bool capturing =
      is_capturing(static_cast<cudaStream_t>(athanor::detail::current_stream_state(device_).native));
  const std::lock_guard lock(mutex_);
  if (!pool.parked_first || capturing) return;
  count_host_sync("graph pool", Site::current());
  reclaim(pool, true);
}

std::int64_t DeviceAllocator::held(const Pool& pool) const {
  const std::lock_guard lock(mutex_);
  return pool.held;
}

std::uint64_t DeviceAllocator::in_use(const Pool& pool) const {
  const std::lock_guard lock(mutex_);
  return pool.in_use;
}

void DeviceAllocator::dissolve(Pool& pool) noexcept {
  const std::lock_guard lock(mutex_);
  while (Segment* segment = pool.segments) {
    pool.segments = segment->next;
    for (Chunk* chunk = segment->first; chunk; chunk = chunk->after) {
      if (chunk->state == Chunk::State::free) erase_free(*chunk);
    }
    segment->pool = &shared_;
    segment->previous = nullptr;
    segment->next = shared_.segments;
    if (segment->next) segment->next->previous = segment;
    shared_.segments = segment;
    shared_.held += static_cast<std::int64_t>(segment->bytes);
    for (Chunk* chunk = segment->first; chunk; chunk = chunk->after) {
      if (chunk->state == Chunk::State::free) insert_free(*chunk);
    }
  }
  for (Chunk* chunk = pool.parked_first; chunk;) park(*std::exchange(chunk, chunk->next));
}

}  // namespace athanor::cuda
