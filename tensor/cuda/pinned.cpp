#include "tensor/pinned.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/cuda/allocator.h"
#include "tensor/cuda/pinned_pool.h"
#include "tensor/detail/host_copy.h"

namespace athanor {
namespace cuda {

/// Page-locking takes milliseconds, so memory is freed only when it runs out. A loader's slots and the few
/// sizes of copy.cpp soon all exist: exact sizes waste nothing and are always found again.
class PinnedPool {
 public:
  Ref<PinnedBlock> take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const PinnedBlock* block) { return block->bytes() == bytes && block->idle(); };
    const auto found = std::find_if(free_.begin(), free_.end(), fits);
    PinnedBlock* block = nullptr;
    if (found != free_.end()) {
      block = *found;
      free_.erase(found);
      block->uses_.clear();
      cached_ -= size(*block);
    } else {
      block = grow(bytes);
    }
    current_ += size(*block);
    return Ref<PinnedBlock>(block);
  }

  void give_back(PinnedBlock& block) noexcept {
    const std::lock_guard lock(mutex_);
    free_.push_back(&block);  // capacity was reserved when the block was created
    current_ -= size(block);
    cached_ += size(block);
  }

  bool record(const void* data, const Stream& stream) {
    const std::lock_guard lock(mutex_);
    const auto after = std::upper_bound(
        blocks_.begin(), blocks_.end(), data,
        [](const void* at, const PinnedBlock* block) { return std::less<>()(at, block->data()); });
    if (after == blocks_.begin()) return false;
    PinnedBlock& block = **(after - 1);
    const auto* end = static_cast<const std::byte*>(block.data()) + block.bytes();
    if (!std::less<>()(static_cast<const std::byte*>(data), end)) return false;
    block.record(stream);
    return true;
  }

  PinnedStats stats() const {
    const std::lock_guard lock(mutex_);
    return {current_, cached_, static_cast<std::int64_t>(blocks_.size())};
  }

 private:
  static std::int64_t size(const PinnedBlock& block) { return static_cast<std::int64_t>(block.bytes()); }

  PinnedBlock* grow(std::size_t bytes) {
    if (thread_is_capturing()) {
      athanor::detail::fail<Error>(
          "allocate: page-locked memory cannot be allocated during a graph capture, but {} bytes are needed "
          "(a copy from pageable memory needs them, too); allocate it before the capture, with empty_pinned",
          bytes);
    }
    void* data = nullptr;
    cudaError_t status = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      release_cached();
      status = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
    }
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      athanor::detail::fail<OutOfMemoryError>(
          "out of page-locked memory: requested {} bytes, but {} are held and {} cached; use fewer workers "
          "or a smaller batch",
          bytes, current_, cached_);
    }
    athanor::detail::check_status(status, "cudaHostAlloc", Site::current());
    auto* block = new PinnedBlock(data, bytes);
    const auto less = [](const PinnedBlock* a, const PinnedBlock* b) {
      return std::less<>()(a->data(), b->data());
    };
    blocks_.insert(std::lower_bound(blocks_.begin(), blocks_.end(), block, less), block);
    free_.reserve(blocks_.size());
    return block;
  }

  // Returns memory to the system, only if the system has no more. Waits for its users.
  void release_cached() {
    count_host_sync("page-locked memory", Site::current());
    std::vector<PinnedBlock*> remaining;
    remaining.reserve(free_.capacity());
    for (PinnedBlock* block : std::exchange(free_, {})) {
      if (!block->broken_) block->wait();
      if (block->broken_ || cudaFreeHost(block->data()) != cudaSuccess) {
        remaining.push_back(block);
        continue;
      }
      cached_ -= size(*block);
      std::erase(blocks_, block);
      delete block;
    }
    free_ = std::move(remaining);
  }

  mutable std::mutex mutex_;
  std::vector<PinnedBlock*> blocks_;  // all, by address
  std::vector<PinnedBlock*> free_;    // oldest first: most likely to be idle
  std::int64_t current_ = 0, cached_ = 0;
};

namespace {

PinnedPool& pool() {
  static auto* const instance = new PinnedPool;  // never destroyed: tensors are freed during exit, too
  return *instance;
}

}  // namespace

void PinnedBlock::record(const Stream& stream) {
  if (stream.device().is_cpu()) return;
  const auto same = [&](const Use& use) { return use.stream == stream; };
  if (std::none_of(uses_.begin(), uses_.end(), same)) uses_.push_back({stream, Event(stream.device())});
}

bool PinnedBlock::idle() const {
  if (broken_) return false;
  // A thread that captures a graph must not query events.
  return uses_.empty() ||
         (!thread_is_capturing() &&
          std::all_of(uses_.begin(), uses_.end(), [](const Use& use) { return use.event.done(); }));
}

void PinnedBlock::wait() const {
  for (const Use& use : uses_) use.event.synchronize();
}

void PinnedBlock::dispose() noexcept {
  try {
    for (Use& use : uses_) {
      // A copy captured in a graph repeats with every replay: the memory is never free.
      if (may_be_capturing(static_cast<cudaStream_t>(use.stream.native()))) broken_ = true;
      if (!broken_) use.event.record(use.stream);
    }
  } catch (const Error&) {
    broken_ = true;
  }
  pool().give_back(*this);
}

Ref<PinnedBlock> take_pinned(std::size_t bytes) {
  return pool().take(bytes);
}

bool record_if_pinned(const void* data, const Stream& stream) {
  return pool().record(data, stream);
}

}  // namespace cuda

Tensor empty_pinned(const Shape& shape, DType dtype) {
  const std::size_t bytes = detail::checked_bytes(shape, dtype, "empty_pinned");
  if (bytes == 0 || cuda_device_count() == 0) return Tensor::empty(shape, {dtype, kCpu});
  const Ref<cuda::PinnedBlock> block = cuda::take_pinned(bytes);
  return Tensor::wrap(make_ref<Storage>(block->data(), bytes, block), 0, shape, contiguous_strides(shape),
                      dtype);
}

bool is_pinned(const Tensor& tensor) {
  return dynamic_cast<cuda::PinnedBlock*>(tensor.storage()->owner().get()) != nullptr;
}

PinnedStats pinned_stats() {
  return cuda::pool().stats();
}

void record_stream(const Tensor& tensor, const Stream& stream) {
  if (stream.device().is_cpu()) return;
  if (tensor.device().is_cpu()) {
    cuda::record_if_pinned(tensor.storage()->data(), stream);
  } else if (const Block* block = tensor.storage()->block()) {
    ATH_CHECK(stream.device() == tensor.device(),
              "record_stream: the stream must belong to {}, but belongs to {}", tensor.device().str(),
              stream.device().str());
    cuda::device_allocator_of(tensor.device()).record_stream(*block, stream);
  }
}

}  // namespace athanor
