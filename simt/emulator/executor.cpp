#include "simt/emulator/executor.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "simt/emulator/access.h"
#include "simt/emulator/asynchronous.h"
#include "simt/emulator/race.h"
#include "simt/emulator/waiting.h"
#include "simt/emulator/warp_counters.h"

// How a grid is run on one thread of the host.
//
// Blocks run one after the other. A block's threads are called one after the other too, by a worker: a loop
// on a fiber that takes the next thread that has not begun and calls the kernel for it. Only a thread that
// must wait gives its fiber up, in the middle of the kernel, and another worker takes over. So a kernel
// without barriers is a plain loop of calls, on one stack, and a kernel with them costs one switch (20 ns)
// each time a thread waits; a kernel need not declare which it is.
//
// A block barrier opens when its last thread arrives: all become ready and run on in the order that was asked
// for. Lanes of a warp that do something together each leave pointers to their value and their result (both
// on their own stacks, which stay put while they wait), and the last of them hands the values out. A lane
// cannot run ahead and spoil a value that another has yet to read, for every value is read at that moment.
//
// A thread that breaks a rule says so and goes straight back to the host's stack: the rest of the block is
// abandoned where it stands. Kernels hold nothing that a destructor would have to give back.

// In a section of their own, which the race detector leaves out.
__attribute__((section("simt_builtin"))) uint3 threadIdx{}, blockIdx{};
__attribute__((section("simt_builtin"))) dim3 blockDim{}, gridDim{};

namespace simt {
namespace {
constexpr std::size_t kSharedAlignment = 16;
}  // namespace

Executor& executor() {
  static Executor& result = *new Executor;
  return result;
}

// ---- which thread runs

// The worker that can continue when the current one cannot; null: none.
Worker* Executor::next_worker() {
  if (begun_ < count_) return workers_.take(&Executor::work);
  while (ready_.empty()) {
    if (done_ == count_ || !run_one_asynchronous()) return nullptr;
  }
  return ready_.pop();
}

const async::BlockWork& Executor::block_work() const {
  const async::BlockWork* const own = grid_->call->work;
  return own ? *own : async::kEmulated;
}

bool Executor::run_one_asynchronous() {
  std::string refused;
  try {
    return block_work().run_one();
  } catch (Refusal& refusal) {
    refused = std::move(refusal.text);
  }
  fail(std::move(refused));
}

void Executor::release(unsigned thread) {
  ready_.push(threads_[thread].worker);
}

void Executor::begin_thread(unsigned thread) {
  threadIdx = threads_[thread].index;
  race::run_thread(thread);
}

void Executor::wait() {
  Worker* const me = workers_.current();
  Worker* const next = next_worker();
  if (next != me) workers_.switch_to(next);
  begin_thread(me->thread);
}

void Executor::work() {
  Executor& self = executor();
  Worker* const me = self.workers_.current();
  const KernelCall& call = *self.grid_->call;
  for (;;) {
    while (self.begun_ < self.count_) {
      const unsigned thread = self.order_[self.begun_++];
      me->thread = thread;
      self.threads_[thread].worker = me;
      self.begin_thread(thread);
      std::string thrown;
      try {
        call.run();
      } catch (const std::exception& error) {
        thrown = fmt::format("thread {} throws: {}", self.name(thread), error.what());
      } catch (Refusal& refusal) {
        thrown = std::move(refusal.text);
      }
      if (!thrown.empty()) self.fail(std::move(thrown));
      counting::end_thread(thread);
      self.threads_[thread].done = true;
      ++self.done_;
      waiting::thread_left();
    }
    self.workers_.give_back(me);
    self.workers_.switch_to(self.next_worker());
  }
}

// ---- what went wrong

std::string Executor::name(unsigned thread) const {
  const uint3& index = threads_[thread].index;
  return fmt::format("({},{},{})", index.x, index.y, index.z);
}

std::string Executor::in_block(const std::string& what) const {
  return fmt::format("kernel {}, block ({},{},{}): {}", grid_->name, blockIdx.x, blockIdx.y, blockIdx.z,
                     what);
}

std::string Executor::in_thread() const {
  return in_block("thread " + name(acting_ < 0 ? current_thread() : static_cast<unsigned>(acting_)));
}

// What the abandoned stacks own is never freed: callers hand the text over, and keep no other.
void Executor::fail(std::string&& what) {
  fault_ = in_block(what);
  std::string().swap(what);
  workers_.switch_to(nullptr);
  __builtin_trap();  // the host never comes back
}

// ---- a grid

void Executor::reorder() {
  if (options().threads.kind != Order::Kind::random) return;
  for (unsigned i = count_; i > 1; --i) std::swap(order_[i - 1], order_[random_.below(i)]);
}

void DynamicShared::resize(std::size_t bytes) {
  // An exact end, so that AddressSanitizer's red zone begins there; and no better aligned than promised.
#if defined(__SANITIZE_ADDRESS__)
  const bool keep = bytes == capacity_;
#else
  const bool keep = bytes <= capacity_;
#endif
  if (!keep) {
    void* block = nullptr;
    if (posix_memalign(&block, 2 * kSharedAlignment, kSharedAlignment + bytes) != 0) throw std::bad_alloc();
    block_.reset(block);
    capacity_ = bytes;
  }
  bytes_ = bytes;
  data_ = bytes > 0 ? static_cast<char*>(block_.get()) + kSharedAlignment : nullptr;
}

void BlockSequence::begin(const dim3& grid, Order::Kind order, Random& random) {
  grid_ = grid;
  size_ = std::uint64_t{grid.x} * grid.y * grid.z;
  stride_ = 1, offset_ = 0;
  if (order == Order::Kind::reverse) stride_ = offset_ = size_ - 1;
  if (order == Order::Kind::random && size_ > 1) {
    do stride_ = 1 + random.below(std::min<std::uint64_t>(size_ - 1, 1u << 30));
    while (std::gcd(stride_, size_) != 1);
    offset_ = random.below(size_);
  }
}

// stride and number of blocks have no common divisor, so every block comes up once.
uint3 BlockSequence::at(std::uint64_t position) const {
  __extension__ using Wide = unsigned __int128;
  const auto block = static_cast<std::uint64_t>((static_cast<Wide>(position) * stride_ + offset_) % size_);
  return {static_cast<unsigned>(block % grid_.x), static_cast<unsigned>(block / grid_.x % grid_.y),
          static_cast<unsigned>(block / grid_.x / grid_.y)};
}

void Executor::prepare(const Grid& grid) {
  const Order& order = options().threads;
  grid_ = &grid;
  gridDim = grid.grid;
  blockDim = grid.block;
  count_ = grid.block.x * grid.block.y * grid.block.z;
  random_ = Random(order.seed);
  threads_.resize(count_);
  order_.resize(count_);
  for (unsigned i = 0; i < count_; ++i) {
    threads_[i].index = {i % grid.block.x, i / grid.block.x % grid.block.y, i / grid.block.x / grid.block.y};
    order_[i] = order.kind == Order::Kind::reverse ? count_ - 1 - i : i;
  }
  shared_.resize(grid.shared_bytes);
  blocks_.begin(grid.grid, order.kind, random_);
  workers_.begin_launch();
  acting_ = -1;
  fault_.clear();
}

void Executor::run_block() {
  // NaN, if read before it is written.
  if (shared_.data()) std::memset(shared_.data(), 0xff, shared_.bytes());
  for (Thread& thread : threads_) thread.done = false;
  begun_ = done_ = 0;
  ready_.clear(count_);
  waiting::begin_block(count_);
  reorder();
  race::begin_block();
  block_work().begin_block(grid_->call->kernel, count_, shared_.bytes());
  workers_.switch_to(workers_.take(&Executor::work));
  if (fault_.empty() && done_ != count_) fault_ = in_block(waiting::stuck());
  if (fault_.empty()) {
    if (const std::string wrong = block_work().end_block(); !wrong.empty()) fault_ = in_block(wrong);
  }
  counting::end_block();
}

void Executor::run(const Grid& grid) {
  prepare(grid);
  ++stats.launches;
  race::begin_grid(grid, shared_.data());
  counting::begin_grid(grid);
  watch_accesses(true, workers_.stacks().begin(), workers_.stacks().end());
  for (std::uint64_t position = 0; position < blocks_.size() && fault_.empty(); ++position) {
    blockIdx = blocks_.at(position);
    run_block();
  }
  watch_accesses(false);
  race::end_grid();
  if (!fault_.empty()) throw KernelFault(fault_);
}

void run_grid(const Grid& grid) {
  executor().run(grid);
}

const ExecutorStats& executor_stats() {
  return executor().stats;
}

// ---- what kernels call

void* dynamic_shared_memory() {
  return executor().shared().data();
}

unsigned lane() {
  return executor().current_thread() % 32;
}

void fail_kernel(const char* what, const Site& site) {
  Executor& now = executor();
  std::string text = fmt::format("{}: thread {} at {}", what, now.name(now.current_thread()), place(site));
  now.fail(std::move(text));
}

}  // namespace simt

#if defined(__SANITIZE_ADDRESS__)
// An index that is off by a row must not land in the next array: as much room round each as there can be.
extern "C" __attribute__((weak)) const char* __asan_default_options() {
  return "redzone=2048";
}

// The sanitizers call these before, or as, they report an error. Their report has the line; what it cannot
// know is which thread of which block of which launch. Weak: a program may say it in its own words.
extern "C" __attribute__((weak)) void __asan_on_error() {
  const simt::Executor& now = simt::executor();
  if (!now.running()) return;
  const std::string text = now.in_thread() + "\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}
extern "C" __attribute__((weak)) void __ubsan_on_report() {
  __asan_on_error();
}
#endif
