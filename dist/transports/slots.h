#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "dist/transports/transport.h"

namespace athanor::dist {

/// A transport's data on each message in flight, by the number in its Request. Addresses are stable.
template <class Slot> class Slots {
 public:
  /// Creates that many free slots.
  void reserve(std::size_t room) {
    free_.reserve(2 * room);
    slots_.resize(room);
    for (std::size_t i = room; i-- > 0;) free_.push_back(static_cast<std::int32_t>(i));
  }
  /// A free slot, or a new one made from `made`.
  template <class... Made> Request take(const Made&... made) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::int32_t>(slots_.size()));
      slots_.emplace_back(made...);
    }
    const Request request{free_.back()};
    free_.pop_back();
    return request;
  }
  void release(Request& request) {
    free_.push_back(request.slot);
    request.slot = -1;
  }
  Slot& operator[](Request request) { return slots_[static_cast<std::size_t>(request.slot)]; }
  auto begin() { return slots_.begin(); }
  auto end() { return slots_.end(); }

 private:
  std::deque<Slot> slots_;
  std::vector<std::int32_t> free_;
};

}  // namespace athanor::dist
