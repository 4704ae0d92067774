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

/// Fills slots with the batches of one epoch after another.
///
/// Steps are numbered from 0 at the place go_to() names, across epochs; step n is made in slot n % D. A
/// ticket is one row of one step: they are handed out in order by one atomic counter, so that whatever the
/// next batch lacks is what somebody reads now. Of large batches a thread takes a few in a row: of small
/// images, what threads share would take as long as the reading. Three rules are all there is:
///
/// - A thread whose ticket is of step n waits until n < freed + D (back-pressure).
/// - The one that writes the last row of a slot wakes the consumer (`left` counts down).
/// - go_to() closes the gate, waits until the threads inside have come out, and numbers anew.
///
/// No thread ends before the destructor, which asks them to stop: each does after the read it is in.
class BatchReaders {
 public:
  static constexpr std::int64_t kMostAtOnce = 16;  ///< tickets

  /// Makes `threads` threads, of which `awake` work, and `slots` slots.
  BatchReaders(const Dataset& data, const LoaderOptions& options, const BatchPlan& plan, int threads,
               int awake, int slots);
  ~BatchReaders();

  /// Goes on with step `step` of `epoch` as number 0; all slots are free. Waits for the reads under way.
  void go_to(std::int64_t epoch, std::int64_t step);
  /// The slots of steps below `number` may be filled anew.
  void free_below(std::int64_t number);
  /// Whether there is a slot for step `number`.
  bool has_slot(std::int64_t number) const { return number < bound_.load(std::memory_order_relaxed); }
  /// Whether step `number`, which has a slot, is complete.
  bool complete(std::int64_t number) const {
    return has_slot(number) && of(number).left.load(std::memory_order_acquire) == 0;
  }
  /// Waits until it is, but not much longer than that; true when it is.
  bool wait(std::int64_t number, std::chrono::microseconds most);
  /// Reads all rows of step `number` in this thread.
  void fill_here(std::int64_t number);

  Slot& of(std::int64_t number) { return slots_[static_cast<std::size_t>(number) % slots_.size()]; }
  const Slot& of(std::int64_t number) const {
    return slots_[static_cast<std::size_t>(number) % slots_.size()];
  }
  /// This rank's rows of step `number`; 0 where nothing is read that far ahead.
  std::int64_t rows(std::int64_t number) const;
  /// Whether the steps after the end of `epoch` are being read.
  bool goes_on_after(std::int64_t epoch) const { return epoch < last_epoch(); }

  int threads() const { return static_cast<int>(threads_.size()); }
  int slots() const { return static_cast<int>(slots_.size()); }
  int awake() const { return awake_.load(std::memory_order_relaxed); }
  void set_awake(int count);
  /// Seconds that threads have spent reading so far, and that they could have.
  struct Work {
    double busy_s = 0, capacity_s = 0;
  };
  Work work() const;
  /// What the slowest first read of a thread took longer than reads do that follow one: what opens the set.
  double opening_s() const;
  /// The read that has lasted longest: "worker 2 has been reading sample 7 (FILE) for 12 s"; empty where none
  /// lasts for `seconds`.
  std::string stuck(double seconds) const;
  std::int64_t slot_bytes() const { return layout_.bytes; }
  const RowLayout& layout() const { return layout_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct alignas(64) ReaderState {  // of a thread
    std::atomic<std::int64_t> busy_ns{0};
    std::atomic<std::int64_t> first_ns{0}, reads{0};  // how long the first read took, of so many
    std::atomic<std::int64_t> sample{-1};
    std::atomic<Clock::rep> since{0};  // when it began to read; 0: it does not
  };

  void run(const std::stop_token& stop, int me);
  void take_tickets(const std::stop_token& stop, int me);
  bool may_read(const std::stop_token& stop, std::int64_t epoch, std::int64_t number);
  /// Reads rows [first, end) of step `number`, which lies at `epoch` and `step`.
  void read_rows(const std::stop_token& stop, std::int64_t number, std::int64_t epoch, std::int64_t step,
                 std::int64_t first, std::int64_t end, int me);
  Read read_row(std::int64_t sample, std::int64_t epoch, const SampleRow& row, int me,
                Clock::time_point& now);
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
  SampleReader reader_;
  SampleOrder order_;
  std::deque<Slot> slots_;  // never moves them

  std::int64_t epoch_ = 0, step_ = 0;  // of number 0
  std::int64_t first_ticket_ = 0;      // of number 0, counted from the beginning of its epoch
  std::atomic<std::int64_t> tickets_{0}, bound_{0};
  std::atomic<bool> open_{false};
  std::atomic<int> awake_;

  mutable std::mutex mutex_;
  std::condition_variable_any gate_;  // threads may come in
  std::condition_variable_any room_;  // there is another free slot, or the gate was closed
  std::condition_variable done_;      // a slot is complete, or nobody is inside
  int inside_ = 0, waiting_ = 0;      // threads with the gate behind them; those that wait for room

  std::vector<ReaderState> states_;
  double capacity_before_s_ = 0;
  Clock::time_point counted_from_ = Clock::now();
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

}  // namespace athanor::detail
