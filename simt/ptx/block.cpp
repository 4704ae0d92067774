#include "simt/ptx/block.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>

#include <fmt/format.h>

#include "simt/emulator/options.h"

namespace simt::ptx {

SharedWindow shared_window{};

namespace {

std::optional<Block>& running() {
  static auto& result = *new std::optional<Block>;
  return result;
}

}  // namespace

Block& block() {
  return *running();
}

bool late() {
  return options().async == Async::late;
}

unsigned current_thread() {
  return executor().current_thread();
}

// ---- what goes wrong

void refuse(const char* instruction, unsigned thread, const std::string& what, const Site& site) {
  throw Refusal{
      fmt::format("{}: thread {} {}, at {}", instruction, executor().name(thread), what, place(site))};
}

void refuse(const char* instruction, const std::string& what, const Site& site) {
  refuse(instruction, current_thread(), what, site);
}

void refuse_address(std::uint64_t offset, std::size_t bytes, const Site& site) {
  if (offset < kSharedBegin || offset + bytes > shared_window.bytes) {
    refuse("shared memory",
           fmt::format("accesses {} bytes at {:#x}, but the block has {:#x} to {:#x}", bytes, offset,
                       kSharedBegin, shared_window.bytes),
           site);
  }
  refuse("shared memory", fmt::format("accesses {} bytes at {:#x}, which is misaligned", bytes, offset),
         site);
}

std::uint64_t generic_to_shared(std::uint64_t pointer, const Site& site) {
  const std::uint64_t offset = pointer - shared_to_generic(0);
  if (offset >= kWindowBytes) {
    refuse("cvta.to.shared", fmt::format("gives {:#x}, which is not in shared memory", pointer), site);
  }
  return offset;
}

// ---- a block

void begin_block(unsigned threads, std::size_t window_bytes) {
  if (!shared_window.memory) {
    void* const memory = std::aligned_alloc(1024, kWindowBytes);
    if (!memory) throw std::bad_alloc();
    shared_window.memory = static_cast<char*>(memory);
  }
  shared_window.bytes = static_cast<std::uint32_t>(window_bytes);
  std::memset(shared_window.memory, 0xff, window_bytes);
  running().emplace(threads);
}

std::string end_block() {
  const Block& ends = block();
  for (const BulkCopy& copy : ends.bulk_copies) {
    return fmt::format("{}: that of thread {}, started at {}, is still in flight at the kernel's end",
                       copy.instruction, executor().name(copy.thread), place(copy.site));
  }
  return end_warpgroups(ends);
}

std::string what_is_missing(const void* barrier) {
  return static_cast<const Waited*>(barrier)->missing();
}

void setmaxnreg(bool raise, std::uint32_t registers, const Site& site) {
  if (registers % 8 == 0 && registers >= 24 && registers <= 256) return;
  refuse(raise ? "setmaxnreg.inc" : "setmaxnreg.dec",
         fmt::format("asks for {} registers, but they are a multiple of 8 from 24 to 256", registers), site);
}

// ---- barriers of the block

namespace {

void require_one_place_per_warp(const BlockBarrier& barrier) {
  const BlockBarrier::Arrival* first[32] = {};
  for (const BlockBarrier::Arrival& each : barrier.arrived) {
    const BlockBarrier::Arrival*& of_warp = first[each.thread / 32];
    if (!of_warp) of_warp = &each;
    if (of_warp->site.line == each.site.line) continue;
    refuse("bar.sync", each.thread,
           fmt::format("is not where thread {} of its warp is, at {}", executor().name(of_warp->thread),
                       place(of_warp->site)),
           each.site);
  }
}

std::uint32_t arrive_and_wait(std::uint32_t a, std::uint32_t threads, bool predicate, const Site& site) {
  constexpr const char* kName = "bar.sync";
  if (a >= std::size(block().barriers)) refuse(kName, fmt::format("names barrier {} of 16", a), site);
  if (threads % 32 != 0) {
    refuse(kName, fmt::format("expects {} threads, which is not a multiple of the warp's 32", threads), site);
  }
  BlockBarrier& barrier = block().barriers[a];
  const std::uint32_t expected = threads == 0 ? executor().threads() : threads;
  if (!barrier.arrived.empty() && barrier.expected != expected) {
    refuse(kName,
           fmt::format("expects {} threads at barrier {}, but those who wait expect {}", expected, a,
                       barrier.expected),
           site);
  }
  barrier.expected = expected;
  std::uint32_t count = 0;
  barrier.arrived.push_back({current_thread(), predicate, &count, site});
  if (barrier.arrived.size() < expected) {
    barrier.wait(site);
    return count;
  }
  require_one_place_per_warp(barrier);
  ++executor().stats.block_barriers;
  std::uint32_t all = 0;
  for (const BlockBarrier::Arrival& each : barrier.arrived) all += each.predicate;
  for (const BlockBarrier::Arrival& each : barrier.arrived) *each.count = all;
  barrier.arrived.clear();
  if (expected == executor().threads()) executor().reorder();  // not before all have begun
  barrier.release_all();
  return count;
}

}  // namespace

std::string BlockBarrier::missing() const {
  return fmt::format("bar.sync, to which {} of {} threads have come", arrived.size(), expected);
}

void bar_sync(std::uint32_t a, std::uint32_t threads, const Site& site) {
  arrive_and_wait(a, threads, false, site);
}

std::uint32_t bar_red_popc(std::uint32_t a, std::uint32_t threads, bool predicate, const Site& site) {
  return arrive_and_wait(a, threads, predicate, site);
}

bool bar_red_and(std::uint32_t a, std::uint32_t threads, bool predicate, const Site& site) {
  return arrive_and_wait(a, threads, !predicate, site) == 0;
}

bool bar_red_or(std::uint32_t a, std::uint32_t threads, bool predicate, const Site& site) {
  return arrive_and_wait(a, threads, predicate, site) != 0;
}

}  // namespace simt::ptx
