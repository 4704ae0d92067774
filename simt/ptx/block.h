#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "simt/emulator/executor.h"
#include "simt/emulator/waiting.h"
#include "simt/ptx/instructions.h"
#include "simt/tensor_map.h"

// What the block that runs is doing, for the files that implement instructions.h.

namespace simt::ptx {

/// Fails the kernel: "NAME: thread (1,0,0) WHAT, at k.ptx:20".
[[noreturn]] void refuse(const char* instruction, unsigned thread, const std::string& what, const Site& site);
[[noreturn]] void refuse(const char* instruction, const std::string& what, const Site& site);

/// Something in which threads wait, by wait_in_memory(), until release_all() is called.
struct Waited {
  virtual ~Waited() = default;
  /// Ends "thread (0,0,0) waits at k.ptx:20 for".
  virtual std::string missing() const = 0;

  void wait(const Site& site) const { wait_in_memory(this, site); }
  void release_all() const { release_waiting(this); }
};

bool late();  ///< asynchronous work is done as late as it may be
unsigned current_thread();

// ---- warps

/// Where the lanes of a mask meet.
struct Meeting : Waited {
  const char* instruction = "";
  std::uint32_t mask = 0, arrived = 0;
  std::string missing() const override;
};
/// What a thread has brought there.
struct Arrival {
  const char* instruction;
  std::uint32_t mask;
  void* brought;
  Site site;
};

/// Barrier of the block, one of 16.
struct BlockBarrier : Waited {
  struct Arrival {
    unsigned thread;
    bool predicate;
    std::uint32_t* count;  ///< of true predicates; the thread's own
    Site site;
  };
  std::uint32_t expected = 0;
  std::vector<Arrival> arrived;
  std::string missing() const override;
};

// ---- memory

struct MemoryBarrier : Waited {
  std::uint32_t offset, arrivals;
  Site made;
  std::uint64_t phase = 0;
  std::uint32_t pending;   ///< arrivals
  std::int64_t bytes = 0;  ///< expected, and not yet here: the ISA's tx-count
  std::string missing() const override;
};

/// cp.async: one that a thread has started.
struct Copy {
  char* to;
  const char* from;
  std::uint32_t bytes, source_bytes;
};
struct CopyGroups {
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> closed;
};

/// cp.async.bulk: of a tensor, if the layout has a rank; else of bytes that lie one after the other.
struct BulkCopy {
  const char* instruction;
  unsigned thread;
  Site site;
  std::uint32_t to, bytes;
  const char* from;
  TensorLayout layout;
  std::int32_t at[TensorLayout::kMaxAxes];
  MemoryBarrier* barrier;
};

/// The pieces of 16 bytes of shared memory that products in flight still read: how many read each.
using Reads = std::vector<std::uint16_t>;

// ---- warpgroups

struct Warpgroup;

struct Block {
  explicit Block(unsigned threads);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::vector<std::list<Meeting>> meetings;  ///< by warp
  std::vector<Arrival> arrivals;             ///< by thread
  BlockBarrier barriers[16];
  std::map<std::uint32_t, MemoryBarrier> memory_barriers;  ///< by offset
  std::vector<CopyGroups> copies;                          ///< by thread; empty until there is one
  std::vector<BulkCopy> bulk_copies;
  std::vector<std::unique_ptr<Warpgroup>> warpgroups;  ///< empty until there is a wgmma
  Reads reads;
};
Block& block();

/// Fails the kernel where memory that a product in flight still reads would be written.
void require_unread(const char* instruction, std::uint32_t offset, std::uint32_t bytes, const Site& site);
std::string end_warpgroups(const Block& block);

/// The offset at which the byte is found that a swizzle over `span` bytes, 16 (none), 32, 64 or 128, moved:
/// the bits of the address that number a piece of 16 bytes in the span, from bit 4, are flipped by as many
/// from bit 7. Tensors: Swizzling modes.
constexpr std::uint32_t swizzled(std::uint32_t offset, std::uint32_t span) {
  return offset ^ ((offset >> 7 & (span / 16 - 1)) << 4);
}

}  // namespace simt::ptx
