#pragma once

#include <cstdint>

#include "simt/emulator/plain_memory.h"
#include "simt/emulator/shadow.h"

namespace simt::race {

/// What happened before what among the threads of a block. Block barriers are counted (block epoch); each
/// thread counts what else it lets others know by (its epoch), and keeps what it has heard of theirs: a
/// vector clock, of its own warp alone until something orders threads of different warps without a block
/// barrier.
///
/// Besides threads there are agents, which do asynchronous work: each barrier in memory and each warpgroup is
/// one. What they did is known to those who waited for it, and to whom these tell.
class BlockOrder {
 public:
  using Clock = Vector<std::uint32_t>;
  static constexpr unsigned kFirstAgent = 1024;  ///< agents are numbered like threads, from here on
  static constexpr unsigned kMaxAgents = 256;

  void begin_block(unsigned threads);
  /// Whether `thread` knows that what `stamp` says is over.
  bool knows(unsigned thread, const Stamp& stamp) const;
  std::uint32_t block_epoch() const { return block_epoch_; }
  std::uint32_t epoch_of(unsigned thread) const { return own_[thread]; }

  void block_barrier();
  void warp_sync(unsigned warp, unsigned mask);
  /// `to` learns all that the thread has done and heard of so far.
  void release(unsigned thread, Clock& to);
  void acquire(unsigned thread, const Clock& from);
  unsigned new_agent();
  /// The thread, or a clock, knows what the agent did up to that epoch.
  void learn(unsigned thread, unsigned agent, std::uint32_t epoch);
  void learn(Clock& clock, unsigned agent, std::uint32_t epoch);

  /// A fence between the proxies: later asynchronous work sees what this thread knows to be written.
  void fence(unsigned thread, bool for_barriers_only);
  /// Whether a fence lies between that write and what `thread` does now.
  bool fenced(const Stamp& write, unsigned thread, bool is_barrier) const;

 private:
  struct Fence {
    unsigned thread;
    std::uint32_t block_epoch, epoch;
    bool for_barriers_only;
    Clock row;
  };

  void widen();
  std::uint32_t* row_of(unsigned thread) { return &rows_[std::size_t{thread} * width_]; }
  const std::uint32_t* row_of(unsigned thread) const { return &rows_[std::size_t{thread} * width_]; }
  bool hears(const std::uint32_t* row, unsigned thread, unsigned other, std::uint32_t epoch) const;
  unsigned column_of(unsigned thread) const;

  unsigned threads_ = 0, agents_ = 0, width_ = 0;
  bool wide_ = false;
  std::uint32_t block_epoch_ = 0;
  Clock own_, rows_;
  Vector<Fence> fences_;
};

}  // namespace simt::race
