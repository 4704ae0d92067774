#include "data/detail/batch_readers.h"

#include <algorithm>
#include <csignal>
#include <optional>

#include <fmt/format.h>
#include <pthread.h>

#include "tensor/allocator.h"
#include "tensor/base/trace.h"

namespace athanor::detail {
namespace {

/// New threads inherit the mask: only the main thread handles signals, so they interrupt no reads.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_;
};

std::int64_t epochs_at_once(const BatchPlan& plan, int slots) {
  return slots / plan.steps() + 3;  // one is drawn ahead; tickets need the others
}

/// Small enough that a batch has several runs per thread and a run takes little time: all wait for the last
/// one.
std::int64_t run_of(const BatchPlan& plan, const RowLayout& layout, int threads) {
  constexpr std::int64_t kRunsEach = 8, kMaxBytes = 64 << 10;
  const std::int64_t small = kMaxBytes * layout.rows / layout.bytes;
  const std::int64_t each = plan.rows() / (kRunsEach * std::max(threads, 1));
  return std::clamp<std::int64_t>(std::min(each, small), 1, BatchReaders::kMaxAtOnce);
}

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

BatchReaders::BatchReaders(const Dataset& data, const LoaderOptions& options, const BatchPlan& plan,
                           int threads, int awake, int slots)
    : data_(data),
      plan_(plan),
      layout_(data.fields(), std::max<std::int64_t>(plan.rows(), 1)),
      last_epoch_(options.epochs > 0 ? options.epochs - 1 : INT64_MAX),
      run_(run_of(plan, layout_, threads)),
      training_(options.training),
      stages_files_(options.jpeg != nullptr),
      reader_(data, options),
      order_(plan.samples, options, epochs_at_once(plan, slots)),
      awake_(awake),
      states_(static_cast<std::size_t>(threads)) {
  const AllocTag named("data");
  for (int i = 0; i < slots; ++i) {
    const Shape bytes{layout_.bytes};
    const bool pinned = options.device.is_cuda() && options.pin_memory;
    const Tensor memory = pinned ? empty_pinned(bytes, DType::u8) : Tensor::empty(bytes, {DType::u8, kCpu});
    Slot& slot = slots_.emplace_back(memory, layout_);
    if (options.device.is_cuda() && options.resize_on_device && data.stages())
      slot.stage.emplace(layout_.rows, layout_.places[layout_.image].bytes, pinned);
  }
  const BlockSignals blocked;
  threads_.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, i](const std::stop_token& stop) { run(stop, i); });
  }
}

BatchReaders::~BatchReaders() {
  for (std::jthread& thread : threads_) thread.request_stop();  // all of them before waiting for any
  threads_.clear();
}

// The consumer's side --------------------------------------------------------------------------------------

std::int64_t BatchReaders::rows(std::int64_t number) const {
  const std::int64_t at = step_ + number, steps = plan_.steps();
  return epoch_ + at / steps > last_epoch() ? 0 : plan_.rows_of(at % steps).count;
}

void BatchReaders::seek(std::int64_t epoch, std::int64_t step) {
  std::unique_lock lock(mutex_);
  open_.store(false);
  room_.notify_all();
  done_.wait(lock, [&] { return inside_ == 0; });
  epoch_ = epoch;
  step_ = step;
  first_ticket_ = plan_.rows_before(step);
  tickets_.store(0);
  bound_.store(slots());
  for (std::int64_t number = 0; number < slots(); ++number) {
    clear(of(number), number);
  }
  order_.prepare(epoch);
  open_.store(plan_.rows() > 0);
  gate_.notify_all();
}

void BatchReaders::free_below(std::int64_t number) {
  std::int64_t next = bound_.load(std::memory_order_relaxed);
  if (number + slots() <= next) return;
  const std::lock_guard lock(mutex_);
  for (; next < number + slots(); ++next) clear(of(next), next);
  bound_.store(next, std::memory_order_release);
  if (waiting_ > 0) room_.notify_all();
}

void BatchReaders::clear(Slot& slot, std::int64_t number) {
  if (slot.failed.row >= 0 || slot.replaced.row >= 0 || slot.harmless.row >= 0)
    slot.failed = slot.replaced = slot.harmless = {};
  slot.replacements = slot.harmless_ones = 0;
  if (slot.stage) {
    staged_ = std::max(staged_, slot.stage->wanted());
    slot.stage->clear(staged_);
  }
  slot.left.store(rows(number), std::memory_order_relaxed);
}

std::int64_t BatchReaders::memory_bytes() const {
  std::int64_t bytes = slots() * layout_.bytes;
  for (const Slot& slot : slots_) bytes += slot.stage ? slot.stage->memory().numel() : 0;
  return bytes;
}

bool BatchReaders::wait(std::int64_t number, std::chrono::microseconds most) {
  std::unique_lock lock(mutex_);
  return done_.wait_for(lock, most, [&] { return complete(number); });
}

void BatchReaders::fill_here(std::int64_t number) {
  const std::int64_t at = step_ + number, steps = plan_.steps();
  read_rows({}, number, epoch_ + at / steps, at % steps, 0, rows(number), -1);
}

void BatchReaders::set_awake(int count) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  capacity_before_s_ += awake() * seconds(now - counted_from_);
  counted_from_ = now;
  awake_.store(count);
  gate_.notify_all();
}

BatchReaders::Work BatchReaders::work() const {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  Work work{0, capacity_before_s_ + awake() * seconds(now - counted_from_)};
  for (const ReaderState& state : states_) {
    const Clock::rep since = state.since.load(std::memory_order_relaxed);
    if (since != 0) work.busy_s += seconds(now - Clock::time_point(Clock::duration(since)));
    work.busy_s += static_cast<double>(state.busy_ns.load(std::memory_order_relaxed)) * 1e-9;
  }
  return work;
}

double BatchReaders::opening_s() const {
  double longest = 0, later = 0;
  std::int64_t reads = 0;
  for (const ReaderState& state : states_) {
    const std::int64_t first = state.first_ns.load(std::memory_order_relaxed);
    longest = std::max(longest, static_cast<double>(first) * 1e-9);
    later += static_cast<double>(state.busy_ns.load(std::memory_order_relaxed) - first) * 1e-9;
    reads += std::max<std::int64_t>(state.reads.load(std::memory_order_relaxed) - 1, 0);
  }
  return reads > 0 ? std::max(longest - later / static_cast<double>(reads), 0.0) : 0;
}

std::string BatchReaders::stuck(double at_least) const {
  const Clock::time_point now = Clock::now();
  int worst = -1;
  double longest = at_least;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const Clock::rep since = states_[i].since.load(std::memory_order_relaxed);
    const double lasts = since == 0 ? 0 : seconds(now - Clock::time_point(Clock::duration(since)));
    if (lasts < longest) continue;
    longest = lasts;
    worst = static_cast<int>(i);
  }
  if (worst < 0) return {};
  const std::int64_t sample = states_[static_cast<std::size_t>(worst)].sample.load(std::memory_order_relaxed);
  return fmt::format("worker {} has been reading {} for {:.0f} s", worst, reader_.name_of(sample), longest);
}

// The threads' side ----------------------------------------------------------------------------------------

void BatchReaders::run(const std::stop_token& stop, int me) {
  pthread_setname_np(pthread_self(), fmt::format("loader/{}", me).c_str());
  name_thread(fmt::format("{} {}", training_ ? "loader" : "validation loader", me));
  std::unique_lock lock(mutex_);
  while (gate_.wait(lock, stop, [&] { return wanted(me); }) && !stop.stop_requested()) {
    ++inside_;
    lock.unlock();
    take_tickets(stop, me);
    lock.lock();
    if (--inside_ == 0) done_.notify_all();
  }
}

void BatchReaders::take_tickets(const std::stop_token& stop, int me) {
  while (wanted(me) && !stop.stop_requested()) {
    std::int64_t left = run_;
    const std::int64_t ticket = tickets_.fetch_add(run_, std::memory_order_relaxed) + first_ticket_;
    // A run may extend into following steps, and each of them needs its own wait.
    for (BatchPlan::Position position = plan_.position(ticket); left > 0; position.row = 0) {
      const std::int64_t number = position.epoch * plan_.steps() + position.step - step_;
      if (!may_read(stop, epoch_ + position.epoch, number)) return;
      const std::int64_t end = std::min(position.row + left, plan_.rows_of(position.step).count);
      read_rows(stop, number, epoch_ + position.epoch, position.step, position.row, end, me);
      left -= end - position.row;
      if (++position.step == plan_.steps()) {
        position.step = 0;
        ++position.epoch;
      }
    }
  }
}

// False only if the ticket is void: the gate was closed, or the reader is being destroyed.
bool BatchReaders::may_read(const std::stop_token& stop, std::int64_t epoch, std::int64_t number) {
  const auto ready = [&] { return number < bound_.load(std::memory_order_acquire) && epoch <= last_epoch(); };
  if (ready()) return true;
  std::unique_lock lock(mutex_);
  ++waiting_;
  room_.wait(lock, stop, [&] { return ready() || !open_.load(std::memory_order_relaxed); });
  --waiting_;
  return ready() && open_.load(std::memory_order_relaxed) && !stop.stop_requested();
}

void BatchReaders::announce(std::int64_t epoch, std::int64_t step, std::int64_t row) {
  // Draws the next epoch's order in advance, so that its first ticket finds it ready. Without threads,
  // drawing on demand is as good.
  const bool ahead = !states_.empty() && goes_on_after(epoch);
  if (ahead && step == plan_.steps() / 2 && row == 0) order_.prepare(epoch + 1);
  if (!order_.announces()) return;
  const std::int64_t position = plan_.rows_of(step).first + row;
  std::int64_t before = position - 1;  // of this rank's previous row
  if (row == 0 && step > 0) {
    const BatchPlan::Rows rows_before = plan_.rows_of(step - 1);
    before = rows_before.first + rows_before.count - 1;
  }
  if (row == 0 && (step == 0 || (epoch == epoch_ && step == step_))) before = -1;
  order_.announce(data_, epoch, before, position);
}

void BatchReaders::read_rows(const std::stop_token& stop, std::int64_t number, std::int64_t epoch,
                             std::int64_t step, std::int64_t first, std::int64_t end, int me) {
  if (first == end) return;  // the last, short batch may have no rows for this rank
  std::optional<TraceScope> traced(std::in_place, "read", "read",
                                   training_ ? epoch * plan_.steps() + step : -1);
  Slot& slot = of(number);
  const std::int64_t begin = plan_.rows_of(step).first;
  auto* const memory = reinterpret_cast<std::byte*>(slot.tensors.memory.data<std::uint8_t>());
  auto* const samples = slot.tensors.samples.data<std::int64_t>();
  PixelStage* const stage = slot.stage ? &*slot.stage : nullptr;
  Clock::time_point now = me < 0 ? Clock::time_point() : Clock::now();
  for (std::int64_t row = first; row < end; ++row) {
    announce(epoch, step, row);
    Read read =
        read_row(order_.at(epoch, begin + row), epoch, {layout_, memory, row, stage, stages_files_}, me, now);
    samples[row] = read.sample;
    if (read.failed || read.replaced || read.harmless) keep_problems(slot, row, read);
    // The rest of the slot is not needed: the reader is stopping or renumbering.
    if (stop.stop_requested() || !open_.load(std::memory_order_relaxed)) return;
  }
  traced.reset();  // recorded before the batch can be used
  if (slot.left.fetch_sub(end - first, std::memory_order_acq_rel) == end - first) {
    { const std::lock_guard lock(mutex_); }  // a waiter that checked before now waits
    done_.notify_all();
  }
}

// `now` is the clock before, then after: one reading per sample.
Read BatchReaders::read_row(std::int64_t sample, std::int64_t epoch, const SampleRow& row, int me,
                            Clock::time_point& now) {
  if (me < 0) return reader_.read(sample, epoch, me, row);
  ReaderState& state = states_[static_cast<std::size_t>(me)];
  const Clock::time_point began = now;
  state.sample.store(sample, std::memory_order_relaxed);
  state.since.store(began.time_since_epoch().count(), std::memory_order_relaxed);
  Read result = reader_.read(sample, epoch, me, row);
  now = Clock::now();
  const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(now - began).count();
  state.since.store(0, std::memory_order_relaxed);
  const std::int64_t reads = state.reads.load(std::memory_order_relaxed);
  if (reads == 0) state.first_ns.store(took, std::memory_order_relaxed);
  state.reads.store(reads + 1, std::memory_order_relaxed);
  // Only this thread writes it, so no atomic addition is needed.
  state.busy_ns.store(state.busy_ns.load(std::memory_order_relaxed) + took, std::memory_order_relaxed);
  return result;
}

void BatchReaders::keep_problems(Slot& slot, std::int64_t row, Read& read) {
  const std::lock_guard lock(mutex_);
  const auto keep_first = [&](Problem& first_found, std::optional<Problem>& found) {
    if (!found || (first_found.row >= 0 && first_found.row < row)) return;
    first_found = std::move(*found);
    first_found.row = row;
  };
  slot.replacements += read.replaced ? 1 : 0;
  slot.harmless_ones += read.harmless ? 1 : 0;
  keep_first(slot.failed, read.failed);
  keep_first(slot.replaced, read.replaced);
  keep_first(slot.harmless, read.harmless);
}

}  // namespace athanor::detail
