#include "simt/emulator/block_order.h"

#include <algorithm>
#include <bit>

namespace simt::race {
namespace {
constexpr unsigned kWarp = 32;

void join(std::uint32_t* to, const std::uint32_t* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = std::max(to[i], from[i]);
}
}  // namespace

void BlockOrder::begin_block(unsigned threads) {
  threads_ = threads;
  agents_ = 0;
  wide_ = false;
  width_ = kWarp;
  block_epoch_ = 0;
  own_.assign(threads, 1u);
  rows_.assign(std::size_t{threads} * width_, 0u);
  fences_.clear();
}

unsigned BlockOrder::column_of(unsigned thread) const {
  if (thread >= kFirstAgent) return threads_ + thread - kFirstAgent;
  return wide_ ? thread : thread % kWarp;
}

bool BlockOrder::hears(const std::uint32_t* row, unsigned thread, unsigned other, std::uint32_t epoch) const {
  if (!wide_ && (other >= kFirstAgent || other / kWarp != thread / kWarp)) return false;
  return epoch <= row[column_of(other)];
}

bool BlockOrder::knows(unsigned thread, const Stamp& stamp) const {
  const auto other = static_cast<unsigned>(stamp.thread);
  if (other < kFirstAgent && (other == thread || stamp.block_epoch < block_epoch_)) return true;
  return hears(row_of(thread), thread, other, stamp.lane_epoch);
}

void BlockOrder::block_barrier() {
  ++block_epoch_;
  if (agents_ == 0) return;
  Clock all(agents_, 0u);
  for (unsigned thread = 0; thread < threads_; ++thread) join(all.data(), row_of(thread) + threads_, agents_);
  for (unsigned thread = 0; thread < threads_; ++thread)
    std::copy(all.begin(), all.end(), row_of(thread) + threads_);
}

void BlockOrder::warp_sync(unsigned warp, unsigned mask) {
  const auto for_each = [&](auto&& f) {
    for (unsigned left = mask; left != 0; left &= left - 1)
      f(warp * kWarp + static_cast<unsigned>(std::countr_zero(left)));
  };
  Clock all(width_, 0u);
  for_each([&](unsigned thread) { join(all.data(), row_of(thread), width_); });
  for_each([&](unsigned thread) { all[column_of(thread)] = own_[thread]++; });
  for_each([&](unsigned thread) { std::copy(all.begin(), all.end(), row_of(thread)); });
}

void BlockOrder::widen() {
  if (wide_) return;
  const Clock narrow = rows_;
  wide_ = true;
  width_ = threads_ + kMaxAgents;
  rows_.assign(std::size_t{threads_} * width_, 0u);
  for (unsigned thread = 0; thread < threads_; ++thread) {
    const unsigned first = thread / kWarp * kWarp, lanes = std::min(kWarp, threads_ - first);
    std::copy_n(&narrow[std::size_t{thread} * kWarp], lanes, row_of(thread) + first);
  }
  for (Fence& fence : fences_) {
    Clock row(width_, 0u);
    const unsigned first = fence.thread / kWarp * kWarp;
    std::copy_n(fence.row.begin(), std::min(kWarp, threads_ - first), row.begin() + first);
    fence.row = row;
  }
}

void BlockOrder::release(unsigned thread, Clock& to) {
  widen();
  to.resize(width_, 0u);
  join(to.data(), row_of(thread), width_);
  to[thread] = std::max(to[thread], own_[thread]++);
}

void BlockOrder::acquire(unsigned thread, const Clock& from) {
  widen();
  join(row_of(thread), from.data(), from.size());
}

unsigned BlockOrder::new_agent() {
  widen();
  return kFirstAgent + (agents_ < kMaxAgents ? agents_++ : kMaxAgents - 1);
}

void BlockOrder::learn(unsigned thread, unsigned agent, std::uint32_t epoch) {
  std::uint32_t& known = row_of(thread)[column_of(agent)];
  known = std::max(known, epoch);
}

void BlockOrder::learn(Clock& clock, unsigned agent, std::uint32_t epoch) {
  clock.resize(width_, 0u);
  std::uint32_t& known = clock[column_of(agent)];
  known = std::max(known, epoch);
}

void BlockOrder::fence(unsigned thread, bool for_barriers_only) {
  const std::uint32_t* row = row_of(thread);
  Fence made{thread, block_epoch_, own_[thread]++, for_barriers_only, Clock(row, row + width_)};
  // One that knows as much as an earlier one of the same thread, and is as widely known, takes its place.
  constexpr std::size_t kMax = 4;
  const auto of_thread = [&](const Fence& other) { return other.thread == thread; };
  if (std::count_if(fences_.begin(), fences_.end(), of_thread) >= static_cast<std::ptrdiff_t>(kMax))
    fences_.erase(std::find_if(fences_.begin(), fences_.end(), of_thread));
  fences_.push_back(std::move(made));
}

bool BlockOrder::fenced(const Stamp& write, unsigned thread, bool is_barrier) const {
  const auto writer = static_cast<unsigned>(write.thread);
  return std::any_of(fences_.begin(), fences_.end(), [&](const Fence& fence) {
    if (fence.for_barriers_only && !is_barrier) return false;
    const bool after_write =
        (writer == fence.thread && write.lane_epoch <= fence.epoch) ||
        write.block_epoch < fence.block_epoch ||
        (writer != fence.thread && hears(fence.row.data(), fence.thread, writer, write.lane_epoch));
    const bool before_now = fence.thread == thread || fence.block_epoch < block_epoch_ ||
                            hears(row_of(thread), thread, fence.thread, fence.epoch);
    return after_write && before_now;
  });
}

}  // namespace simt::race
