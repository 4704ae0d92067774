#include "simt/emulator/memory.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "simt/emulator/options.h"
#include "simt/emulator/race.h"
#include "simt/emulator/runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

// Ordinary memory of the host, filled with 0xff (NaN, -1) when it is handed out and again when it is given
// back. What is given back stays mapped until all work that was queued by then has run, so that late work
// cannot harm anybody else; under AddressSanitizer it is an error at the line that touches it.

namespace simt {
namespace {

constexpr std::size_t kAlignment = 512;
constexpr std::size_t kPoisoned = std::size_t{256} << 20;  // more is left as the system gives it

}  // namespace

std::size_t& Memory::used(cudaMemoryType type, int device) {
  return type == cudaMemoryTypeDevice ? used_[static_cast<std::size_t>(device)] : pinned_used_;
}

void* Memory::allocate(std::size_t bytes, cudaMemoryType type, int device, const Site& site) {
  if (type == cudaMemoryTypeDevice && bytes > bytes_free(device)) {
    throw Failure{cudaErrorMemoryAllocation,
                  fmt::format("{} bytes requested, but device {} has {} of {} left (SIMT_MEMORY)", bytes,
                              device, bytes_free(device), options().memory_bytes)};
  }
  if (type == cudaMemoryTypeHost &&
      bytes > options().pinned_bytes - std::min(options().pinned_bytes, pinned_used_)) {
    throw Failure{cudaErrorMemoryAllocation,
                  fmt::format("{} bytes of page-locked memory requested, but {} of {} are used (SIMT_PINNED)",
                              bytes, pinned_used_, options().pinned_bytes)};
  }
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, bytes) != 0) {
    throw Failure{cudaErrorMemoryAllocation, fmt::format("the host does not have {} bytes left", bytes)};
  }
  if (bytes <= kPoisoned) std::memset(memory, 0xff, bytes);
  used(type, device) += bytes;
  auto* base = static_cast<char*>(memory);
  race::forget(base, bytes);
  allocations_.emplace(base, Allocation{base, bytes, type, device, site, ++made_});
  return memory;
}

std::size_t Memory::bytes_free(int device) const {
  const std::size_t all = options().memory_bytes;
  return all - std::min(all, used_[static_cast<std::size_t>(device)]);
}

const Allocation* Memory::find(const void* pointer) const {
  auto after = allocations_.upper_bound(static_cast<const char*>(pointer));
  if (after == allocations_.begin()) return nullptr;
  const Allocation& before = std::prev(after)->second;
  return before.contains(pointer) ? &before : nullptr;
}

const Allocation* Memory::find_or_end(const char* pointer) const {
  const Allocation* memory = find(pointer);
  return memory ? memory : find(pointer - 1);
}

Allocation Memory::live(void* memory, cudaMemoryType type) const {
  const auto found = allocations_.find(static_cast<char*>(memory));
  if (found == allocations_.end() || found->second.type != type) {
    throw Failure{cudaErrorInvalidValue, fmt::format("{} is not the address of a live allocation", memory)};
  }
  return found->second;
}

void Memory::bury(const Allocation& allocation) {
  allocations_.erase(allocation.base);
  race::forget(allocation.base, allocation.bytes);
  used(allocation.type, allocation.device) -= allocation.bytes;
  if (allocation.bytes <= kPoisoned) std::memset(allocation.base, 0xff, allocation.bytes);
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(allocation.base, allocation.bytes);
#endif
  buried_.push_back(allocation);
  buried_bytes_ += allocation.bytes;
}

void Memory::empty_graveyard() {
  for (const Allocation& allocation : buried_) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(allocation.base, allocation.bytes);
#endif
    std::free(allocation.base);
  }
  buried_.clear();
  buried_bytes_ = 0;
}

}  // namespace simt
