#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "data/detail/batch_plan.h"
#include "data/detail/sample_order.h"
#include "data/detail/sample_reader.h"
#include "data/detail/slot.h"

namespace athanor::detail {

/// Fills slots with the batches of successive epochs.
///
/// Steps are numbered from 0 at the position of seek(), across epochs; step n uses slot n % D. A ticket is
/// one row of one step. One atomic counter issues tickets in order, so threads always work on the rows that
/// the next batch lacks. For large batches a thread takes several tickets at once: with small images,
/// contention would cost as much as reading. There are three rules:
///
/// - A thread whose ticket is of step n waits until n < freed + D (back-pressure).
/// - The thread that writes the last row of a slot wakes the consumer (`left` counts down).
/// - seek() closes the gate, waits until all threads inside have left, and renumbers.
///
/// No thread ends before the destructor, which asks them to stop: each stops after its current read.
class BatchReaders {
 public:
  static constexpr std::int64_t kMaxAtOnce = 16;  ///< tickets

  /// Creates `threads` threads, of which `awake` work, and `slots` slots.
  BatchReaders(const Dataset& data, const LoaderOptions& options, const BatchPlan& plan, int threads,
               int awake, int slots);
  ~BatchReaders();

  /// Restarts with step `step` of `epoch` as number 0; all slots become free. Waits for reads in progress.
  void seek(std::int64_t epoch, std::int64_t step);
  /// Releases the slots of steps below `number`.
  void free_below(std::int64_t number);
  /// Whether step `number` has a slot.
  bool has_slot(std::int64_t number) const { return number < bound_.load(std::memory_order_relaxed); }
  /// Whether step `number`, which must have a slot, is complete.
  bool complete(std::int64_t number) const {
    return has_slot(number) && of(number).left.load(std::memory_order_acquire) == 0;
  }
  /// Waits until it is complete, for about `most`; returns whether it is.
  bool wait(std::int64_t number, std::chrono::microseconds most);
  /// Reads all rows of step `number` in the calling thread.
  void fill_here(std::int64_t number);

  Slot& of(std::int64_t number) { return slots_[static_cast<std::size_t>(number) % slots_.size()]; }
  const Slot& of(std::int64_t number) const {
    return slots_[static_cast<std::size_t>(number) % slots_.size()];
  }
  /// This rank's rows of step `number`; 0 beyond the prefetch limit.
  std::int64_t rows(std::int64_t number) const;
  /// Whether prefetching continues after `epoch`.
  bool goes_on_after(std::int64_t epoch) const { return epoch < last_epoch(); }

  int threads() const { return static_cast<int>(threads_.size()); }
  int slots() const { return static_cast<int>(slots_.size()); }
  int awake() const { return awake_.load(std::memory_order_relaxed); }
  void set_awake(int count);
  /// Seconds that threads have spent reading, and the total available.
  struct Work {
    double busy_s = 0, capacity_s = 0;
  };
  Work work() const;
  /// The excess of the slowest first read of a thread over later reads: the time to open the set.
  double opening_s() const;
  /// The longest read in progress: "worker 2 has been reading sample 7 (FILE) for 12 s"; empty if none lasts
  /// `seconds`.
  std::string stuck(double seconds) const;
  /// Bytes of all slots.
  std::int64_t memory_bytes() const;
  const RowLayout& layout() const { return layout_; }

  /// "sample 7 (photos/7.jpg)".
  std::string name_of(std::int64_t sample) const { return reader_.name_of(sample); }

 private:
  using Clock = std::chrono::steady_clock;
  struct alignas(64) ReaderState {  // per thread
    std::atomic<std::int64_t> busy_ns{0};
    std::atomic<std::int64_t> first_ns{0}, reads{0};  // duration of the first read; number of reads
    std::atomic<std::int64_t> sample{-1};
    std::atomic<Clock::rep> since{0};  // start of the current read; 0: none
  };

  void run(const std::stop_token& stop, int me);
  void take_tickets(const std::stop_token& stop, int me);
  bool may_read(const std::stop_token& stop, std::int64_t epoch, std::int64_t number);
  /// Reads rows [first, end) of step `number`, which is `step` of `epoch`.
  void read_rows(const std::stop_token& stop, std::int64_t number, std::int64_t epoch, std::int64_t step,
                 std::int64_t first, std::int64_t end, int me);
  Read read_row(std::int64_t sample, std::int64_t epoch, const SampleRow& row, int me,
                Clock::time_point& now);
  /// Frees a slot for step `number`.
  void clear(Slot& slot, std::int64_t number);
  void keep_problems(Slot& slot, std::int64_t row, Read& read);
  void announce(std::int64_t epoch, std::int64_t step, std::int64_t row);
  std::int64_t last_epoch() const { return std::max(last_epoch_, epoch_); }
  bool wanted(int me) const { return open_.load(std::memory_order_relaxed) && me < awake(); }

  const Dataset& data_;
  const BatchPlan plan_;
  const RowLayout layout_;
  const std::int64_t last_epoch_;
  const std::int64_t run_;  // tickets that a thread takes at once
  const bool training_;
  const bool stages_files_;
  SampleReader reader_;
  SampleOrder order_;
  std::deque<Slot> slots_;   // stable addresses
  std::int64_t staged_ = 0;  // most bytes that a batch's images asked for

  std::int64_t epoch_ = 0, step_ = 0;  // of number 0
  std::int64_t first_ticket_ = 0;      // of number 0, relative to its epoch
  std::atomic<std::int64_t> tickets_{0}, bound_{0};
  std::atomic<bool> open_{false};
  std::atomic<int> awake_;

  mutable std::mutex mutex_;
  std::condition_variable_any gate_;  // threads may enter
  std::condition_variable_any room_;  // another slot is free, or the gate was closed
  std::condition_variable done_;      // a slot is complete, or no thread is inside
  int inside_ = 0, waiting_ = 0;      // threads past the gate; those that wait for room

  std::vector<ReaderState> states_;
  double capacity_before_s_ = 0;
  Clock::time_point counted_from_ = Clock::now();
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

}  // namespace athanor::detail
