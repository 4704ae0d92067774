#include "dist/bucket_runner.h"

#include <utility>

#include "kernels/context.h"
#include "tensor/error.h"

namespace athanor::dist {

BucketRunner::BucketRunner(Communicator& comm, Overlap overlap,
                           std::vector<std::unique_ptr<Collective>> collectives)
    : comm_(comm), overlap_(overlap), collectives_(std::move(collectives)) {
  if (overlap == Overlap::thread) thread_ = std::thread([this] { run_thread(); });
}

BucketRunner::~BucketRunner() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BucketRunner::run_thread() {
  cpu_context().set_threads(1);  // the others compute
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || done_ < launched_; });
    if (stop_) return;
    const int next = done_;
    lock.unlock();
    std::exception_ptr error;
    try {
      Collective& collective = *collectives_[static_cast<std::size_t>(next)];
      collective.start(comm_.next_tag());
      dist::finish(collective, comm_.transport(),
                   {.timeout = comm_.options().timeout, .bucket = next, .stop = &stop_});
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
  if (overlap_ != Overlap::thread) {
    ++launched_;
    return pump();
  }
  {
    const std::lock_guard lock(mutex_);
    ++launched_;
  }
  changed_.notify_all();
}

// Goes on with the collectives that are launched: as far as they can, or, waiting, to their end.
bool BucketRunner::push(bool wait) {
  for (; done_ < launched_; ++done_, started_ = false) {
    Collective& collective = *collectives_[static_cast<std::size_t>(done_)];
    const WaitOptions options{.timeout = comm_.options().timeout, .bucket = done_};
    if (!std::exchange(started_, true)) collective.start(comm_.next_tag());
    if (wait) {
      dist::finish(collective, comm_.transport(), options);
    } else if (!dist::push(collective, options)) {
      return false;
    }
  }
  return true;
}

void BucketRunner::pump() {
  if (overlap_ == Overlap::pumped) push(false);
}

void BucketRunner::finish() {
  ATH_CHECK(launched_ == static_cast<int>(collectives_.size()),
            "buckets: all {} must have been launched, but {} were", collectives_.size(), launched_);
  if (overlap_ == Overlap::thread) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ || done_ == launched_; });
    if (error_) std::rethrow_exception(error_);
    launched_ = done_ = 0;
    return;
  }
  push(true);
  launched_ = done_ = 0;
}

}  // namespace athanor::dist
