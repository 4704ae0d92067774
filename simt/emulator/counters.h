#pragma once

#include <cstdint>
#include <string>
#include <vector>

// What the memory accesses of kernels would cost on a GPU, as far as it follows from addresses: counted for
// each line of each kernel. In the race build, whose kernels report their accesses; other builds count
// nothing.
//
//   simt::start_counting();
//   ...                                       // launches, and a wait for them
//   std::puts(simt::table(simt::stop_counting()).c_str());

namespace simt {

enum class AccessKind : std::uint8_t {
  global_read,
  global_write,
  global_atomic,
  shared_read,
  shared_write,
  shared_atomic,
};
constexpr bool is_shared(AccessKind kind) {
  return kind >= AccessKind::shared_read;
}

/// One line's accesses of one kind. A warp access is one instruction for all lanes of a warp that execute it.
struct AccessCount {
  std::string place;  ///< "transpose.cu:17"
  AccessKind kind = AccessKind::global_read;
  std::uint64_t warps = 0;  ///< warp accesses
  std::uint64_t lanes = 0;  ///< lanes in them; of all 32: 32 * warps
  std::uint64_t bytes = 0;  ///< asked for by lanes
  /// Global memory moves in sectors of 32 bytes: those a warp access touches, and the fewest that could hold
  /// its bytes. A line that is coalesced has no more than the fewest.
  std::uint64_t sectors = 0, fewest_sectors = 0;
  /// Shared memory has 32 banks of 4 bytes, each giving one word at a time; a warp access takes as many
  /// rounds as the busiest bank has different words. (8 bytes a lane go by half warps, 16 by quarters.) More
  /// rounds than the fewest are bank conflicts. Atomics count by the same rule: all lanes on one word are one
  /// round, where a GPU may take one for each lane.
  std::uint64_t rounds = 0, fewest_rounds = 0;

  AccessCount& operator+=(const AccessCount& other);  ///< of the numbers
};

/// The basic blocks that begin at one line: code that runs through to a branch.
struct BranchCount {
  std::string place;
  std::uint64_t warps = 0;     ///< times a warp executed one
  std::uint64_t lanes = 0;     ///< lanes that did
  std::uint64_t diverged = 0;  ///< times its lanes went on to different blocks: a divergent branch

  BranchCount& operator+=(const BranchCount& other);
};

struct KernelCounts {
  std::string name;
  std::uint64_t launches = 0, blocks = 0, threads = 0;
  /// Bytes of global memory that a launch reads and writes, each byte once for each launch: what memory moves
  /// if the cache holds all that is used again. Atomics do both. Asynchronous copies are not counted.
  std::uint64_t bytes_read = 0, bytes_written = 0;
  std::vector<AccessCount> accesses;  ///< by place
  std::vector<BranchCount> branches;

  /// The sum over all lines.
  AccessCount total(AccessKind kind) const;
  BranchCount total_branches() const;
};

struct Counts {
  std::vector<KernelCounts> kernels;  ///< by name

  /// Null where no kernel of that name ran.
  const KernelCounts* find(const std::string& name) const;
};

/// Whether this build can count.
bool can_count();
/// From now on, what kernels do is counted; for races they are not searched meanwhile.
void start_counting();
Counts stop_counting();
/// As text, a row for each line of each kernel.
std::string table(const Counts& counts);

}  // namespace simt
