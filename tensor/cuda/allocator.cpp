#include "tensor/cuda/allocator.h"

#include <algorithm>
#include <utility>

#include "simt/emulation.h"
#include "tensor/base/error.h"
#include "tensor/cuda/device.h"
#include "tensor/detail/device_memory.h"

namespace athanor {
namespace cuda {
namespace {

constexpr std::size_t kGranule = 512;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kMaxSmall = kMiB;
constexpr std::size_t kSmallSegment = 2 * kMiB;
constexpr std::size_t kMediumSegment = 20 * kMiB;  // for large blocks below kOwnSegment
constexpr std::size_t kOwnSegment = 10 * kMiB;
constexpr std::size_t kMinRest = 64 * 1024;  // minimum remainder for splitting a large chunk

constexpr std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

constinit thread_local std::array<Pool*, athanor::detail::kMaxDevices> active_pools{};

std::size_t index_of(Device device) {
  return static_cast<std::size_t>(device.index);
}

}  // namespace

Pool* exchange_active_pool(Device device, Pool* active) {
  return std::exchange(active_pools[index_of(device)], active);
}

DeviceAllocator::DeviceAllocator(Device device, Blocks blocks)
    : device_(device), exact_(blocks == Blocks::exact) {}

DeviceAllocator::~DeviceAllocator() {
  const std::lock_guard lock(mutex_);
  try {
    const DeviceGuard guard(device_);
    ATH_TRY(cudaDeviceSynchronize());
    while (shared_.segments) remove_segment(*shared_.segments);
  } catch (const Error&) {  // the device has failed, and its memory is lost
  }
}

// Allocating -----------------------------------------------------------------------------------------------

Block DeviceAllocator::allocate(std::size_t bytes) {
  if (bytes == 0) return {nullptr, 0, athanor::detail::current_tag, 0};
  const athanor::detail::StreamState& stream = athanor::detail::current_stream_state(device_);
  const Request request = request_of(bytes);
  const std::lock_guard lock(mutex_);
  Pool& pool = pool_of_thread();
  // A graph would keep writing to memory that the cache has already reused.
  if (!pool.graph && is_capturing(static_cast<cudaStream_t>(stream.native))) refuse_in_capture(request);
  Chunk* chunk = find(pool, stream.id, request);
  // Blocks parked in a graph's pool wait for the next Use.
  if (!chunk && pool.parked_first && !pool.graph) {
    reclaim(pool, false);
    chunk = find(pool, stream.id, request);
  }
  if (chunk) {
    erase_free(*chunk);
  } else {
    chunk = &grow(pool, stream, request);
  }
  split(*chunk, request);
  chunk->state = Chunk::State::live;
  pool.in_use += identify(*chunk);
  // So a free parks it until its own stream has also finished with it.
  if (exact_ && !pool.graph) add_use(*chunk, chunk->segment->stream, chunk->segment->stream_id);
  usage_.charge(chunk->bytes, athanor::detail::current_tag);
  return {chunk->data, chunk->bytes, athanor::detail::current_tag, chunk->index};
}

DeviceAllocator::Request DeviceAllocator::request_of(std::size_t bytes) const {
  if (exact_) return {bytes, bytes, false};
  return {bytes, round_up(bytes, kGranule), bytes <= kMaxSmall};
}

Pool& DeviceAllocator::pool_of_thread() {
  Pool* const active = active_pools[index_of(device_)];
  return active && active->graph == this ? *active : shared_;
}

Chunk* DeviceAllocator::find(Pool& pool, std::uint32_t stream_id, const Request& request) {
  Chunk* chunk = pool.lists(stream_id, request.small).best_fit(request.size);
  return chunk && exact_ && chunk->bytes != request.size ? nullptr : chunk;
}

Chunk& DeviceAllocator::grow(Pool& pool, const athanor::detail::StreamState& stream, const Request& request) {
  if (pool.graph && is_capturing(static_cast<cudaStream_t>(stream.native))) refuse_in_capture(request);
  const std::size_t least = exact_          ? request.size
                            : request.small ? kSmallSegment
                                            : round_up(request.size, 2 * kMiB);
  const bool alone = exact_ || request.small || request.size >= kOwnSegment;
  Segment* segment = alone ? nullptr : add_segment(pool, stream, kMediumSegment, false);
  if (!segment) segment = add_segment(pool, stream, least, request.small);
  if (!segment) {
    release_cached();
    segment = add_segment(pool, stream, least, request.small);
  }
  if (!segment) out_of_memory(request);
  return *segment->first;
}

Segment* DeviceAllocator::add_segment(Pool& pool, const athanor::detail::StreamState& stream,
                                      std::size_t bytes, bool small) {
  Segment& segment = segments_.take();
  Chunk& chunk = chunks_.take();
  void* data = system_allocate(bytes);
  if (!data) {
    chunks_.give_back(chunk);
    segments_.give_back(segment);
    return nullptr;
  }
  segment.first = &chunk;
  segment.pool = &pool;
  segment.stream = static_cast<cudaStream_t>(stream.native);
  segment.stream_id = stream.id;
  segment.small = small;
  segment.bytes = bytes;
  segment.previous = nullptr;
  segment.next = pool.segments;
  if (segment.next) segment.next->previous = &segment;
  pool.segments = &segment;
  pool.held += static_cast<std::int64_t>(bytes);
  chunk.data = static_cast<std::byte*>(data);
  chunk.bytes = bytes;
  chunk.segment = &segment;
  chunk.before = chunk.after = nullptr;
  usage_.grew(bytes);
  return &segment;
}

/// Null if the limit or the device has no room.
void* DeviceAllocator::system_allocate(std::size_t bytes) {
  if (!usage_.has_room(bytes)) return nullptr;
  const DeviceGuard guard(device_);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  athanor::detail::check_status(status, "cudaMalloc", Site::current());
  return data;
}

void DeviceAllocator::split(Chunk& chunk, const Request& request) {
  const std::size_t rest = chunk.bytes - request.size;
  if (rest < (request.small ? kGranule : kMinRest)) return;
  Chunk& second = chunks_.take();
  second.data = chunk.data + request.size;
  second.bytes = rest;
  second.segment = chunk.segment;
  second.before = &chunk;
  second.after = chunk.after;
  if (second.after) second.after->before = &second;
  chunk.after = &second;
  chunk.bytes = request.size;
  insert_free(second);
}

void DeviceAllocator::out_of_memory(const Request& request) const {
  std::size_t free_bytes = 0, total_bytes = 0;
  {
    const DeviceGuard guard(device_);
    cudaMemGetInfo(&free_bytes, &total_bytes);
  }
  athanor::detail::fail<OutOfMemoryError>(
      "out of memory on {}: requested {} bytes, but {} are held and {} cached, and {} of the device's {} are "
      "free ({}); by tag: {}; use a smaller batch or raise --memory-limit",
      device_.str(), request.bytes, usage_.current(), usage_.cached(), free_bytes, total_bytes,
      usage_.limit() > 0 ? fmt::format("the limit is {} bytes", usage_.limit()) : "no limit is set",
      usage_.holders());
}

void DeviceAllocator::refuse_in_capture(const Request& request) const {
  athanor::detail::fail<Error>(
      "allocate: during a graph capture, memory must come from the graph's GraphMemory, but {} bytes on {} "
      "are not in it; run the step under a GraphMemory::Use until the pool stops growing, then capture",
      request.bytes, device_.str());
}

AllocatorStats DeviceAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  std::size_t largest = 0;
  for (const auto& lists : shared_.by_stream) {
    if (lists) largest = std::max({largest, lists->small.largest(), lists->large.largest()});
  }
  return usage_.stats(largest);
}

void DeviceAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  usage_.reset_peak();
}

void DeviceAllocator::set_limit(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  usage_.set_limit(bytes);
}

// Freeing --------------------------------------------------------------------------------------------------

void DeviceAllocator::free(const Block& block) noexcept {
  if (!block.data) return;
  const std::lock_guard lock(mutex_);
  Chunk& chunk = chunks_.at(block.index);
  usage_.release(chunk.bytes, block.tag);
  chunk.segment->pool->in_use -= identify(chunk);
  if (chunk.uses.empty()) {
    put_back(chunk);
  } else {
    park(chunk);
  }
}

// A chunk without remaining uses becomes free; in exact mode it is released.
void DeviceAllocator::put_back(Chunk& chunk) noexcept {
  const bool done = !chunk.uses.empty();
  chunk.uses.clear();
  if (exact_ && done && !chunk.segment->pool->graph) return remove_segment(*chunk.segment);
  const auto is_free = [](const Chunk* neighbour) {
    return neighbour && neighbour->state == Chunk::State::free;
  };
  Chunk* joined = &chunk;
  if (is_free(chunk.before)) {
    joined = chunk.before;
    erase_free(*joined);
    absorb_next(*joined);
  }
  if (is_free(joined->after)) {
    erase_free(*joined->after);
    absorb_next(*joined);
  }
  insert_free(*joined);
}

Chunk& DeviceAllocator::absorb_next(Chunk& chunk) noexcept {
  Chunk& next = *chunk.after;
  chunk.bytes += next.bytes;
  chunk.after = next.after;
  if (chunk.after) chunk.after->before = &chunk;
  next.state = Chunk::State::spare;
  chunks_.give_back(next);
  return chunk;
}

void DeviceAllocator::insert_free(Chunk& chunk) noexcept {
  const Segment& segment = *chunk.segment;
  chunk.state = Chunk::State::free;
  segment.pool->lists(segment.stream_id, segment.small).insert(chunk);
}

void DeviceAllocator::erase_free(Chunk& chunk) noexcept {
  const Segment& segment = *chunk.segment;
  segment.pool->lists(segment.stream_id, segment.small).erase(chunk);
}

// Releases a segment of one chunk that is in no list. All work on it must be done.
void DeviceAllocator::remove_segment(Segment& segment) noexcept {
  Pool& pool = *segment.pool;
  (segment.previous ? segment.previous->next : pool.segments) = segment.next;
  if (segment.next) segment.next->previous = segment.previous;
  cudaFree(segment.first->data);  // its errors are from earlier work, and show at the next wait
  usage_.shrank(segment.bytes);
  pool.held -= static_cast<std::int64_t>(segment.bytes);
  segment.first->state = Chunk::State::spare;
  chunks_.give_back(*segment.first);
  segments_.give_back(segment);
}

void DeviceAllocator::release_cached() {
  const auto releasable = [](const Segment& segment) {
    return segment.first->state == Chunk::State::free && !segment.first->after &&
           !may_be_capturing(segment.stream);
  };
  reclaim(shared_, true);
  for (Segment* segment = shared_.segments; segment;) {
    Segment& candidate = *std::exchange(segment, segment->next);
    if (!releasable(candidate)) continue;
    ATH_TRY(cudaStreamSynchronize(candidate.stream));  // freed chunks may still be in use there
    erase_free(*candidate.first);
    remove_segment(candidate);
  }
}

void DeviceAllocator::trim() {
  count_host_sync("trim", Site::current());
  const bool capturing =
      is_capturing(static_cast<cudaStream_t>(athanor::detail::current_stream_state(device_).native));
  if (capturing) athanor::detail::fail<Error>("trim: memory must not be freed during a graph capture");
  const std::lock_guard lock(mutex_);
  release_cached();
}

// The process's --------------------------------------------------------------------------------------------

DeviceAllocator& device_allocator_of(Device device) {
  athanor::detail::check_device(device);
  constexpr auto kBlocks =
      simt::kChecksAllocations ? DeviceAllocator::Blocks::exact : DeviceAllocator::Blocks::cached;
  // Never destroyed: tensors are freed during exit, too.
  static auto* const all = [] {
    auto* made = new std::array<DeviceAllocator*, athanor::detail::kMaxDevices>{};
    for (int i = 0; i < cuda_device_count(); ++i) {
      const Device each{DeviceType::cuda, static_cast<std::int16_t>(i)};
      (*made)[index_of(each)] = new DeviceAllocator(each, kBlocks);
    }
    return made;
  }();
  return *(*all)[index_of(device)];
}

}  // namespace cuda

Allocator& detail::device_allocator(Device device) {
  return cuda::device_allocator_of(device);
}

}  // namespace athanor
