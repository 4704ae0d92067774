// Explained in docs/overlap.md.
#include "dist/bucket_runner.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "dist/launch/detail/signal_stack.h"
#include "kernels/cpu/context.h"
#include "tensor/base/error.h"
#include "tensor/base/trace.h"

namespace athanor::dist {

BucketRunner::BucketRunner(Communicator& comm, Overlap overlap,
                           std::vector<std::unique_ptr<Collective>> collectives, bool backwards)
    : comm_(comm),
      overlap_(overlap),
      backwards_(backwards),
      collectives_(std::move(collectives)),
      launch_us_(collectives_.size()),
      seqs_(collectives_.size()) {
  ATH_CHECK(overlap != Overlap::thread || comm.transport().threads_may_call(),
            "overlap: a communication thread needs a transport that several threads may call "
            "(MPI_THREAD_SERIALIZED), but this one allows one; use Overlap::pumped");
  if (overlap == Overlap::thread) thread_ = std::thread([this] { run_thread(); });
}

BucketRunner::~BucketRunner() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  if (launched_ == 0) return;
  comm_.session().give_up("buckets were in flight when their owner was destroyed");
  comm_.session().release(this);
}

WaitOptions BucketRunner::options_of(int index) const {
  return {.timeout = comm_.options().timeout,
          .bucket = number_of(index),
          .seq = seqs_[static_cast<std::size_t>(index)]};
}

/// Starts a collective unless it has been; returns it.
Collective& BucketRunner::start(int index) {
  const auto at = static_cast<std::size_t>(index);
  Collective& collective = *collectives_[at];
  if (started_ == index) {
    seqs_[at] = comm_.start(collective, number_of(index), launch_us_[at]);
    ++started_;
  }
  return collective;
}

/// Queues a collective behind one that is queued, if it is among the first `until`.
void BucketRunner::queue_next(int index, int until) {
  if (index >= until) return;
  Collective& next = start(index);
  if (!next.queued()) dist::advance(next, comm_.transport(), options_of(index));
}

void BucketRunner::run_thread() {
  have_signal_stack();
  cpu_context().set_threads(1);  // the other threads compute
  name_thread("communication");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || done_ < handed_over_; });
    if (stop_) return;
    const int now = done_;
    lock.unlock();
    std::exception_ptr error;
    try {
      const std::function<void()> meanwhile = [&] {
        const int until = [&] {
          const std::lock_guard guard(mutex_);
          return handed_over_;
        }();
        queue_next(now + 1, until);
      };
      Collective& collective = start(now);
      WaitOptions options = options_of(now);
      options.stop = &stop_;
      options.meanwhile = &meanwhile;
      dist::finish(collective, comm_.transport(), options);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    ++done_;
    if (error) {
      error_ = error;
      stop_ = true;
    }
    changed_.notify_all();
  }
}

void BucketRunner::launch() {
  if (launched_ == 0) comm_.session().hold(collectives_[0]->name(), this);
  collectives_[static_cast<std::size_t>(launched_)]->filled();
  launch_us_[static_cast<std::size_t>(launched_)] = FlightRecord::now_us();
  ++launched_;
  if (!comm_.session().concurrent()) return;
  hand_over(launched_);
  pump();
}

void BucketRunner::hand_over(int count) {
  if (overlap_ != Overlap::thread) return;
  {
    const std::lock_guard lock(mutex_);
    handed_over_ = std::max(handed_over_, count);
  }
  changed_.notify_all();
}

// Advances the first `until` collectives: as far as possible or, if waiting, to completion.
bool BucketRunner::advance(bool wait, int until) {
  try {
    for (; done_ < until; ++done_) {
      const std::function<void()> meanwhile = [&] { queue_next(done_ + 1, until); };
      Collective& collective = start(done_);
      WaitOptions options = options_of(done_);
      if (wait) {
        options.meanwhile = &meanwhile;
        dist::finish(collective, comm_.transport(), options);
      } else if (!dist::advance(collective, comm_.transport(), options)) {
        if (collective.queued()) meanwhile();
        return false;
      }
    }
  } catch (const std::exception& error) {
    comm_.session().give_up(error.what());
    throw;
  }
  return true;
}

void BucketRunner::pump() {
  if (overlap_ == Overlap::pumped && comm_.session().concurrent()) advance(false, launched_);
}

void BucketRunner::finish() {
  ATH_CHECK(launched_ == static_cast<int>(collectives_.size()),
            "buckets: all {} must have been launched, but {} were", collectives_.size(), launched_);
  wait(launched_);
  {
    const std::lock_guard lock(mutex_);
    launched_ = done_ = started_ = handed_over_ = 0;
  }
  comm_.session().release(this);
}

void BucketRunner::wait(int count) {
  ATH_CHECK(count <= launched_, "buckets: {} must have been launched, but {} were", count, launched_);
  if (overlap_ != Overlap::thread) {
    advance(true, count);
    return;
  }
  hand_over(count);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || done_ >= count; });
  if (!error_) return;
  try {
    std::rethrow_exception(error_);
  } catch (const std::exception& error) {
    comm_.session().give_up(error.what());
    throw;
  }
}

}  // namespace athanor::dist
