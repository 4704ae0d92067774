#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "simt/runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

// Memory of the devices, and pinned memory: ordinary memory of the host, filled with 0xff (NaN, -1) when it
// is handed out and again when it is given back. What is given back stays mapped until all work that was
// queued by then has run, so that late work cannot harm anybody else; under AddressSanitizer it is an error
// at the line that touches it.

namespace simt {
namespace {

constexpr std::size_t kAlignment = 512;
constexpr std::size_t kPoisoned = std::size_t{256} << 20;  // more is left as the system gives it
constexpr std::size_t kGraveyard = std::size_t{256} << 20;

}  // namespace

void* Runtime::allocate(std::size_t bytes, cudaMemoryType type, int index, const Site& site) {
  Device& of = device(index);
  of.has_context = true;
  const bool on_device = type == cudaMemoryTypeDevice;
  if (on_device && bytes > options().memory_bytes - std::min(options().memory_bytes, of.memory_used)) {
    throw Failure{cudaErrorMemoryAllocation,
                  fmt::format("{} bytes requested, but device {} has {} of {} left (SIMT_MEMORY)", bytes,
                              index, memory_free(index), options().memory_bytes)};
  }
  if (!on_device && bytes > options().pinned_bytes - std::min(options().pinned_bytes, pinned_used_)) {
    throw Failure{cudaErrorMemoryAllocation,
                  fmt::format("{} bytes of page-locked memory requested, but {} of {} are used (SIMT_PINNED)",
                              bytes, pinned_used_, options().pinned_bytes)};
  }
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, bytes) != 0) {
    throw Failure{cudaErrorMemoryAllocation, fmt::format("the host does not have {} bytes left", bytes)};
  }
  if (bytes <= kPoisoned) std::memset(memory, 0xff, bytes);
  (on_device ? of.memory_used : pinned_used_) += bytes;
  auto* base = static_cast<char*>(memory);
  race::forget(base, bytes);
  allocations_.emplace(base, Allocation{base, bytes, type, index, site, ++allocations_made_});
  return memory;
}

std::size_t Runtime::memory_free(int index) const {
  return options().memory_bytes - devices_[static_cast<std::size_t>(index)].memory_used;
}

const Allocation* Runtime::find(const void* pointer) const {
  auto after = allocations_.upper_bound(static_cast<const char*>(pointer));
  if (after == allocations_.begin()) return nullptr;
  const Allocation& before = std::prev(after)->second;
  return before.contains(pointer) ? &before : nullptr;
}

void Runtime::release(void* memory, cudaMemoryType type, const char* api) {
  const auto found = allocations_.find(static_cast<char*>(memory));
  if (found == allocations_.end() || found->second.type != type) {
    throw Failure{cudaErrorInvalidValue, fmt::format("{} is not the address of a live allocation", memory)};
  }
  const Allocation allocation = found->second;
  int device = 0;
  std::string user;
  const auto uses = [&](const Stream& stream, const char* begin, std::size_t bytes, auto&& describe) {
    if (!user.empty() || begin >= allocation.base + allocation.bytes || begin + bytes <= allocation.base)
      return;
    device = stream.device;
    user = describe() + fmt::format(", queued on stream {}", stream.id);
  };
  for_each_queued([&](const Stream& stream, const Op& op) {
    if (const auto* copy = std::get_if<CopyWork>(&op.work)) {
      const auto describe = [&] { return fmt::format("a copy of {}:{}", copy->site.file, copy->site.line); };
      uses(stream, copy->to, copy->to_pitch * copy->height, describe);
      uses(stream, copy->from, copy->from_pitch * copy->height, describe);
    } else if (const auto* fill = std::get_if<FillWork>(&op.work)) {
      uses(stream, fill->to, fill->bytes,
           [&] { return fmt::format("a memset of {}:{}", fill->site.file, fill->site.line); });
    } else if (const auto* launch = std::get_if<LaunchWork>(&op.work)) {
      for (const PointerParameter& parameter : launch->call->pointers()) {
        uses(stream, static_cast<const char*>(parameter.value), 1,
             [&] { return fmt::format("parameter {} of kernel {}", parameter.position, launch->name); });
      }
    } else if (const auto* meet = std::get_if<MeetWork>(&op.work)) {
      auto each = [&](const char* begin, std::size_t bytes) {
        uses(stream, begin, bytes, [] { return std::string("a message"); });
      };
      meet->meeting->for_each_range([](void* data, const char* begin,
                                       std::size_t of) { (*static_cast<decltype(each)*>(data))(begin, of); },
                                    &each);
    }
  });
  allocations_.erase(found);
  race::forget(allocation.base, allocation.bytes);
  const bool on_device = type == cudaMemoryTypeDevice;
  (on_device ? devices_[static_cast<std::size_t>(allocation.device)].memory_used : pinned_used_) -=
      allocation.bytes;
  if (!user.empty()) {
    fault(device, fmt::format("{}: {} bytes, allocated at {}:{}, are freed while {} names them", api,
                              allocation.bytes, allocation.site.file, allocation.site.line, user));
  }
  if (allocation.bytes <= kPoisoned) std::memset(allocation.base, 0xff, allocation.bytes);
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(allocation.base, allocation.bytes);
#endif
  graveyard_.push_back(allocation);
  graveyard_bytes_ += allocation.bytes;
  if (graveyard_bytes_ > kGraveyard && captures.empty()) {
    for (int index = 0; index < device_count(); ++index) run_everything(index);
  }
  empty_graveyard();
}

void Runtime::empty_graveyard() {
  if (graveyard_.empty() || anything_queued()) return;
  for (const Allocation& allocation : graveyard_) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(allocation.base, allocation.bytes);
#endif
    std::free(allocation.base);
  }
  graveyard_.clear();
  graveyard_bytes_ = 0;
}

}  // namespace simt
