#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "examples/serve/batcher.h"

namespace athanor::serve {

/// Images that wait to be decoded, by fair queueing: an image's turn is the pixels of its request up to and
/// with it, counted from the turn that is being served when the request comes. So a small request passes the
/// large ones that came before it, but every image has its turn: no later request begins before those that
/// are served. Source: Golestani 1994, self-clocked fair queueing. Not thread-safe.
class FairQueue {
 public:
  /// Appends the images of a request, in their order.
  void push(std::vector<Picture> request) {
    std::int64_t turn = now_;
    for (Picture& picture : request) {
      turn += std::max<std::int64_t>(1, picture.stored_pixels);
      by_turn_.emplace(turn, std::move(picture));
    }
  }
  /// An image that is late, so that its request is answered soon; else the next one that may go and whose
  /// decoding takes at most that many bytes. Empty if there is none.
  template <class MayGo>
  std::optional<Picture> pop(std::int64_t most_bytes, Clock::time_point now, MayGo may_go) {
    const auto first = [this](const auto& is_one) {
      return std::find_if(by_turn_.begin(), by_turn_.end(),
                          [&](const auto& one) { return is_one(one.second); });
    };
    auto at = first([now](const Picture& picture) { return picture.deadline <= now; });
    const bool is_late = at != by_turn_.end();
    if (!is_late) {
      at = first(
          [&](const Picture& picture) { return picture.decoding_bytes <= most_bytes && may_go(picture); });
    }
    if (at == by_turn_.end()) return std::nullopt;
    if (!is_late) now_ = std::max(now_, at->first);
    Picture picture = std::move(at->second);
    by_turn_.erase(at);
    return picture;
  }
  std::optional<Picture> pop(std::int64_t most_bytes, Clock::time_point now) {
    return pop(most_bytes, now, [](const Picture&) { return true; });
  }
  bool empty() const { return by_turn_.empty(); }

 private:
  std::multimap<std::int64_t, Picture> by_turn_;
  std::int64_t now_ = 0;  // the last turn served
};

}  // namespace athanor::serve
