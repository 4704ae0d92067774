#include "kernels/simt/executor.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <simt/device.h>
#include <unistd.h>

#include "kernels/simt/access.h"
#include "kernels/simt/fiber.h"
#include "kernels/simt/options.h"
#include "kernels/simt/race.h"
#include "kernels/simt/symbols.h"
#include "kernels/simt/warp_counters.h"

// How a grid is run on one thread of the host.
//
// Blocks run one after the other. A block's threads are called one after the other too, by a worker: a loop
// on a fiber that takes the next thread nobody has begun and calls the kernel for it. Only a thread that must
// wait gives its fiber up, in the middle of the kernel, and another worker takes over. So a kernel without
// barriers is a plain loop of calls, on one stack, and a kernel with them costs one switch (20 ns) each time
// a thread waits; nobody has to say which is which.
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

#if defined(__SANITIZE_ADDRESS__) || defined(ATHANOR_SIMT_RACE)
constexpr std::size_t kStackBytes = 256 * 1024;
#else
constexpr std::size_t kStackBytes = 64 * 1024;
#endif
constexpr std::size_t kSharedAlignment = 16;

enum class State : std::uint8_t { fresh, ready, at_barrier, at_collective, done };

constexpr std::size_t kMaxThreads = 1024;  // of a block

struct Worker {
  explicit Worker(StackRegion& stacks) : fiber(stacks.take(), stacks.stack_bytes()) {}
  Fiber fiber;
  unsigned thread = 0;
};

/// Where the calls that led somewhere return to, innermost first; from the frame pointers, which the race
/// build keeps.
struct Calls {
  static constexpr int kDepth = 6;
  const void* returns[kDepth] = {};

  static Calls from(const void* frame_address) {
    Calls calls;
    const auto* frame = static_cast<const void* const*>(frame_address);
    for (int i = 0; i < kDepth && frame && frame[1]; ++i) {
      calls.returns[i] = frame[1];
      frame = static_cast<const void* const*>(frame[0]);
    }
    return calls;
  }
  bool operator==(const Calls&) const = default;
};

struct Thread {
  State state;
  Together what;
  std::uint8_t bytes;
  unsigned mask, source;
  Worker* worker;
  const void* in;
  void* out;
  Site site;
  Calls calls;  // race build
  uint3 index;
};

struct Warp {
  unsigned arrived[32];  // by the lowest lane of the mask: which lanes have come
};

class Executor {
 public:
  void run(const Grid& grid);
  int barrier(bool predicate, const Site& site, const void* frame);
  void together(Together what, unsigned mask, const void* in, unsigned bytes, unsigned source, void* out,
                const Site& site, const void* frame);
  [[noreturn]] void fail(std::string&& what);
#if defined(__SANITIZE_ADDRESS__)
  bool running() const {
    return current_ != nullptr;
  }
  std::string in_thread() const {
    return in_block("thread " + name(current_->thread));
  }
#endif

  Thread& self() {
    return threads_[current_->thread];
  }
  unsigned current_thread() const {
    return current_->thread;
  }
  void* shared() {
    return shared_;
  }
  std::string name(unsigned thread) const;
  ExecutorStats stats;

 private:
  static void work();

  void prepare(const Grid& grid);
  void run_block();
  uint3 block_at(std::uint64_t position) const;
  void begin_thread(unsigned thread);
  void wait();
  void switch_to(Worker* next);  // null: the host
  Worker* next_worker();
  Worker* take_worker();
  void open_barrier();
  void complete(unsigned warp, unsigned mask, const Thread& last);
  void release(unsigned thread);
  void reorder();
  std::string stuck() const;
  std::string in_block(const std::string& what) const;

  const Grid* grid_ = nullptr;
  unsigned count_ = 0;  // threads of a block
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<unsigned> order_;
  unsigned begun_ = 0, waiting_ = 0, done_ = 0;
  int votes_ = 0, vote_result_ = 0;

  std::vector<Worker*> ready_;  // a ring of count_ + 1
  std::size_t ready_first_ = 0, ready_end_ = 0;

  StackRegion stacks_{kMaxThreads, kStackBytes};
  std::vector<std::unique_ptr<Worker>> workers_;
  std::size_t workers_used_ = 0;  // in this launch
  std::vector<Worker*> idle_;
  Fiber host_;
  Worker* current_ = nullptr;

  void* shared_ = nullptr;
  std::unique_ptr<void, decltype(&std::free)> shared_block_{nullptr, &std::free};
  std::size_t shared_capacity_ = 0;

  Random random_{1};
  std::uint64_t stride_ = 1, offset_ = 0;  // of the order of blocks
  std::string fault_;
};

Executor& executor() {
  static Executor& result = *new Executor;
  return result;
}

std::string place(const Site& site) {
  return fmt::format("{}:{}", site.file, site.line);
}

#if defined(ATHANOR_SIMT_RACE)
std::string lines_of(const Calls& calls) {
  std::string lines;
  for (const void* address : calls.returns) {
    if (address) lines += calls_at(address);
  }
  return lines;
}
// "a.h:10", and the lines from which it was called: "a.h:10, from k.cu:20".
std::string place(const Thread& thread) {
  const std::string lines = lines_of(thread.calls);
  const auto first = lines.find(", from "), second = lines.find(", from ", first + 1);
  return place(thread.site) + (second == lines.npos ? "" : lines.substr(second));
}
// By the source: the compiler may have made several of one place, for threads that come different ways.
bool same_calls(const Calls& a, const Calls& b) {
  return a == b || lines_of(a) == lines_of(b);
}
#else
std::string place(const Thread& thread) {
  return place(thread.site);
}
bool same_calls(const Calls&, const Calls&) {
  return true;
}
#endif

bool same_place(const Thread& a, const Thread& b) {
  return a.site.line == b.site.line && std::strcmp(a.site.file, b.site.file) == 0 &&
         same_calls(a.calls, b.calls);
}

// ---- which thread runs

void Executor::switch_to(Worker* next) {
  Worker* const from = std::exchange(current_, next);
  ++stats.switches;
  Fiber::switch_to(from ? from->fiber : host_, next ? next->fiber : host_);
}

Worker* Executor::take_worker() {
  if (!idle_.empty()) {
    Worker* const worker = idle_.back();
    idle_.pop_back();
    return worker;
  }
  if (workers_used_ == workers_.size()) {
    workers_.push_back(std::make_unique<Worker>(stacks_));
    idle_.reserve(workers_.size());
  }
  Worker* const worker = workers_[workers_used_++].get();
  worker->fiber.restart(&Executor::work);
  return worker;
}

// Whoever can go on when the current worker cannot; null: nobody.
Worker* Executor::next_worker() {
  if (begun_ < count_) return take_worker();
  if (ready_first_ == ready_end_) return nullptr;
  Worker* const worker = ready_[ready_first_];
  if (++ready_first_ == ready_.size()) ready_first_ = 0;
  return worker;
}

void Executor::release(unsigned thread) {
  threads_[thread].state = State::ready;
  ready_[ready_end_] = threads_[thread].worker;
  if (++ready_end_ == ready_.size()) ready_end_ = 0;
}

void Executor::begin_thread(unsigned thread) {
  threadIdx = threads_[thread].index;
  race::run_thread(thread);
}

void Executor::wait() {
  Worker* const me = current_;
  Worker* const next = next_worker();
  if (next != me) switch_to(next);
  begin_thread(me->thread);
}

void Executor::work() {
  Executor& self = executor();
  Worker* const me = self.current_;
  const Call* const call = self.grid_->call;
  for (;;) {
    while (self.begun_ < self.count_) {
      const unsigned thread = self.order_[self.begun_++];
      me->thread = thread;
      self.threads_[thread].worker = me;
      self.begin_thread(thread);
      std::string thrown;
      try {
        call->run();
      } catch (const std::exception& error) {
        thrown = fmt::format("thread {} throws: {}", self.name(thread), error.what());
      }
      if (!thrown.empty()) self.fail(std::move(thrown));
      counting::end_thread(thread);
      self.threads_[thread].state = State::done;
      ++self.done_;
      if (self.waiting_ > 0 && self.waiting_ + self.done_ == self.count_) self.open_barrier();
    }
    self.idle_.push_back(me);
    self.switch_to(self.next_worker());
  }
}

// ---- waiting for each other

int Executor::barrier(bool predicate, const Site& site, const void* frame) {
  Thread& me = self();
  me.state = State::at_barrier;
  me.site = site;
  if constexpr (race::kOn) me.calls = Calls::from(frame);
  votes_ += predicate;
  if (++waiting_ + done_ == count_) open_barrier();
  wait();
  return vote_result_;
}

void Executor::open_barrier() {
  const auto waits = [](const Thread& thread) { return thread.state == State::at_barrier; };
  const auto first = std::find_if(threads_.begin(), threads_.begin() + count_, waits);
  const auto first_thread = static_cast<unsigned>(first - threads_.begin());
  for (unsigned thread = 0; thread < count_; ++thread) {
    const Thread& other = threads_[thread];
    if (other.state == State::done) {
      std::string text =
          fmt::format("barrier divergence: thread {} has left the kernel, thread {} waits at {}",
                      name(thread), name(first_thread), place(first->site));
      fail(std::move(text));
    }
    if (!same_place(other, *first)) {
      std::string text = fmt::format("barrier divergence: thread {} waits at {}, thread {} at {}",
                                     name(first_thread), place(*first), name(thread), place(other));
      fail(std::move(text));
    }
  }
  ++stats.block_barriers;
  race::block_barrier();
  vote_result_ = std::exchange(votes_, 0);
  waiting_ = 0;
  reorder();
  for (unsigned i = 0; i < count_; ++i) release(order_[i]);
}

void Executor::together(Together what, unsigned mask, const void* in, unsigned bytes, unsigned source,
                        void* out, const Site& site, const void* frame) {
  const unsigned thread = current_->thread, lane = thread % 32, warp = thread / 32;
  const unsigned lanes = std::min(32u, count_ - warp * 32);
  if (lanes < 32) mask &= (1u << lanes) - 1;  // a mask may name lanes the block does not have
  Thread& me = threads_[thread];
  me.what = what;
  me.bytes = static_cast<std::uint8_t>(bytes);
  me.mask = mask;
  me.source = source;
  me.in = in;
  me.out = out;
  me.site = site;
  if constexpr (race::kOn) me.calls = Calls::from(frame);
  if ((mask >> lane & 1) == 0) {
    std::string text = fmt::format(
        "thread {} calls a warp collective with the mask {:#x}, which leaves its own lane {} out, at {}",
        name(thread), mask, lane, place(site));
    fail(std::move(text));
  }
  const int leader = std::countr_zero(mask);
  unsigned& arrived = warps_[warp].arrived[leader];
  arrived |= 1u << lane;
  if ((arrived & mask) != mask) {
    me.state = State::at_collective;
    wait();
    return;
  }
  arrived &= ~mask;  // others may wait already, with a wider mask
  complete(warp, mask, me);
}

// The last lane has come: hands the values out and lets the others go on.
void Executor::complete(unsigned warp, unsigned mask, const Thread& last) {
  ++stats.warp_collectives;
  Thread* const lanes = &threads_[warp * 32];
  const auto first_lane = static_cast<unsigned>(std::countr_zero(mask));
  const Thread& first = lanes[first_lane];
  unsigned ballot = 0;
  for (unsigned left = mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(left));
    const Thread& to = lanes[lane];
    if (to.mask != first.mask || to.what != first.what || to.bytes != first.bytes || !same_place(to, first)) {
      std::string text = fmt::format(
          "warp collective mismatch: thread {} at {} with mask {:#x}, thread {} at {} with mask {:#x}",
          name(warp * 32 + first_lane), place(first), first.mask, name(warp * 32 + lane), place(to), to.mask);
      fail(std::move(text));
    }
    switch (last.what) {
      case Together::sync: break;
      case Together::ballot: ballot |= unsigned{*static_cast<const bool*>(to.in)} << lane; break;
      case Together::match:
      case Together::reduce:
        for (unsigned from = 0; from < 32; ++from) {
          if ((mask >> from & 1) != 0) {
            std::memcpy(static_cast<char*>(to.out) + from * to.bytes, lanes[from].in, to.bytes);
          }
        }
        break;
      default:
        if (to.source > 31 || (mask >> to.source & 1) == 0) {
          std::string text =
              fmt::format("thread {} reads lane {} of its warp, which is not in the mask {:#x}, at {}",
                          name(warp * 32 + lane), to.source, mask, place(to.site));
          fail(std::move(text));
        }
        std::memcpy(to.out, lanes[to.source].in, to.bytes);
    }
  }
  const auto turn = options().threads.kind == Order::Kind::forward ? 0u
                    : options().threads.kind == Order::Kind::reverse
                        ? 31u
                        : static_cast<unsigned>(random_.below(32));
  for (unsigned i = 0; i < 32; ++i) {
    const unsigned lane = i ^ turn;
    if ((mask >> lane & 1) == 0) continue;
    if (last.what == Together::ballot) std::memcpy(lanes[lane].out, &ballot, sizeof(ballot));
    if (lanes[lane].state == State::at_collective) release(warp * 32 + lane);
  }
  if (last.what == Together::sync) race::warp_sync(warp, mask);  // the only one that orders memory
}

// ---- what went wrong

std::string Executor::name(unsigned thread) const {
  const uint3& index = threads_[thread].index;
  return fmt::format("({},{},{})", index.x, index.y, index.z);
}

std::string Executor::in_block(const std::string& what) const {
  return fmt::format("kernel {}, block ({},{},{}): {}", grid_->kernel, blockIdx.x, blockIdx.y, blockIdx.z,
                     what);
}

// What the abandoned stacks own is never freed: callers hand the text over, and keep no other.
void Executor::fail(std::string&& what) {
  fault_ = in_block(what);
  std::string().swap(what);
  switch_to(nullptr);
  __builtin_trap();  // the host never comes back
}

// Nobody can go on, and not all are done.
std::string Executor::stuck() const {
  std::string text = "deadlock:";
  int shown = 0;
  for (unsigned thread = 0; thread < count_ && shown < 4; ++thread) {
    const Thread& other = threads_[thread];
    if (other.state == State::at_barrier) {
      text += fmt::format(" thread {} waits at the barrier {};", name(thread), place(other.site));
      ++shown;
    } else if (other.state == State::at_collective) {
      const unsigned warp = thread / 32, leader = std::countr_zero(other.mask);
      const unsigned missing = other.mask & ~warps_[warp].arrived[leader];
      bool all_left = true;
      for (unsigned left = missing; left != 0; left &= left - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(left));
        all_left = all_left && threads_[warp * 32 + lane].state == State::done;
      }
      text += fmt::format(" thread {} waits at the warp collective {} for lanes {:#x}{};", name(thread),
                          place(other.site), missing,
                          all_left ? ", which have left the kernel: a mask must name those who come" : "");
      ++shown;
    }
  }
  return text + fmt::format(" {} of {} threads have left the kernel", done_, count_);
}

// ---- a grid

void Executor::reorder() {
  if (options().threads.kind != Order::Kind::random) return;
  for (unsigned i = count_; i > 1; --i) std::swap(order_[i - 1], order_[random_.below(i)]);
}

void Executor::prepare(const Grid& grid) {
  const Order& order = options().threads;
  grid_ = &grid;
  gridDim = grid.grid;
  blockDim = grid.block;
  count_ = grid.block.x * grid.block.y * grid.block.z;
  random_ = Random(order.seed);
  threads_.resize(count_);
  warps_.resize((count_ + 31) / 32);
  ready_.resize(count_ + 1);
  order_.resize(count_);
  for (unsigned i = 0; i < count_; ++i) {
    threads_[i].index = {i % grid.block.x, i / grid.block.x % grid.block.y, i / grid.block.x / grid.block.y};
    order_[i] = order.kind == Order::Kind::reverse ? count_ - 1 - i : i;
  }
  // An exact end, so that AddressSanitizer's red zone begins there; and no better aligned than promised.
  const std::size_t bytes = grid.shared_bytes;
#if defined(__SANITIZE_ADDRESS__)
  const bool keep = bytes == shared_capacity_;
#else
  const bool keep = bytes <= shared_capacity_;
#endif
  if (!keep) {
    void* block = nullptr;
    if (posix_memalign(&block, 2 * kSharedAlignment, kSharedAlignment + bytes) != 0) throw std::bad_alloc();
    shared_block_.reset(block);
    shared_capacity_ = bytes;
  }
  shared_ = bytes > 0 ? static_cast<char*>(shared_block_.get()) + kSharedAlignment : nullptr;

  const std::uint64_t blocks = std::uint64_t{grid.grid.x} * grid.grid.y * grid.grid.z;
  stride_ = 1, offset_ = 0;
  if (order.kind == Order::Kind::reverse) stride_ = offset_ = blocks - 1;
  if (order.kind == Order::Kind::random && blocks > 1) {
    do stride_ = 1 + random_.below(std::min<std::uint64_t>(blocks - 1, 1u << 30));
    while (std::gcd(stride_, blocks) != 1);
    offset_ = random_.below(blocks);
  }
  idle_.clear();
  workers_used_ = 0;
  fault_.clear();
}

// stride and number of blocks have no common divisor, so every block comes up once.
uint3 Executor::block_at(std::uint64_t position) const {
  const dim3& size = grid_->grid;
  const std::uint64_t blocks = std::uint64_t{size.x} * size.y * size.z;
  __extension__ using Wide = unsigned __int128;
  const auto block = static_cast<std::uint64_t>((static_cast<Wide>(position) * stride_ + offset_) % blocks);
  return {static_cast<unsigned>(block % size.x), static_cast<unsigned>(block / size.x % size.y),
          static_cast<unsigned>(block / size.x / size.y)};
}

void Executor::run_block() {
  if (shared_) std::memset(shared_, 0xff, grid_->shared_bytes);  // NaN, where nobody writes before reading
  for (Thread& thread : threads_) thread.state = State::fresh;
  std::memset(warps_.data(), 0, warps_.size() * sizeof(Warp));
  begun_ = waiting_ = done_ = 0;
  votes_ = 0;
  ready_first_ = ready_end_ = 0;
  reorder();
  race::begin_block();
  stats.threads += count_;
  switch_to(take_worker());
  if (fault_.empty() && done_ != count_) fault_ = in_block(stuck());
  counting::end_block();
}

void Executor::run(const Grid& grid) {
  prepare(grid);
  ++stats.launches;
  race::begin_grid(grid, shared_);
  counting::begin_grid(grid);
  watch_accesses(true, stacks_.begin(), stacks_.end());
  const std::uint64_t blocks = std::uint64_t{grid.grid.x} * grid.grid.y * grid.grid.z;
  for (std::uint64_t position = 0; position < blocks && fault_.empty(); ++position) {
    blockIdx = block_at(position);
    run_block();
  }
  watch_accesses(false);
  race::end_grid();
  if (!fault_.empty()) throw KernelFault(fault_);
}

}  // namespace

void run_grid(const Grid& grid) {
  executor().run(grid);
}

const ExecutorStats& executor_stats() {
  return executor().stats;
}

// ---- what kernels call

void* dynamic_shared_memory() {
  return executor().shared();
}

int block_barrier(bool predicate, const Site& site) {
  return executor().barrier(predicate, site, __builtin_frame_address(0));
}

void warp_together(Together what, unsigned mask, const void* in, unsigned bytes, unsigned source, void* out,
                   const Site& site) {
  executor().together(what, mask, in, bytes, source, out, site, __builtin_frame_address(0));
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
