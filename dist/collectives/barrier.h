#pragma once

#include "dist/collectives/collective.h"
#include "dist/collectives/slice.h"

namespace athanor::dist {

/// No rank completes before every rank has started.
///
/// In round k, rank r signals rank r + 2^k and receives the signal of rank r - 2^k; after round k it knows of
/// 2^(k+1) ranks. Takes ceil(log2 P) steps of one byte. Source: Hensgen, Finkel, Manber 1988, "Two algorithms
/// for barrier synchronization" (dissemination).
class Barrier final : public PointToPoint {
 public:
  Barrier(Transport& transport, const Group& group)
      : PointToPoint("barrier", transport, group, {}, make_flat(2, DType::u8, transport.device()), 1) {}

  void start(Tag tag) override {
    tag_ = tag;
    away_ = 1;
    received_ = sent_ = 0;
    begin_round();
  }

  bool advance() override {
    while (away_ < group_.size) {
      incoming_.flush();
      received_ += incoming_.pop();
      sent_ += outgoing_.pop();
      if (!incoming_.empty() || !outgoing_.empty()) return false;
      away_ *= 2;
      begin_round();
    }
    return true;
  }

 private:
  void begin_round() {
    if (away_ >= group_.size) return;
    incoming_.receive(group_.rank(index_ - away_), tag_, bytes_of(scratch_, {0, 1}));
    outgoing_.send(group_.rank(index_ + away_), tag_, bytes_of(scratch_, {1, 2}));
  }

  int away_ = 1;
};

}  // namespace athanor::dist
