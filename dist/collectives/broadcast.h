#pragma once

#include "dist/collectives/collective.h"
#include "dist/collectives/group.h"
#include "tensor/tensor.h"

namespace athanor::dist {

/// Everyone gets what rank `root` has.
///
/// The ranks form a chain that begins at the root. The buffer travels along it in segments, each of which is
/// sent on while the next arrives: P - 2 + n / segment steps, n elements received and sent once by everyone
/// (but the two ends). For large buffers, such as all weights of a model, the time of one transfer, whatever
/// P.
class Broadcast final : public Collective {
 public:
  static constexpr std::int64_t kSegmentBytes = 1 << 20;
  static constexpr int kWindow = 2;

  /// `buffer` dense, on the transport's device.
  Broadcast(Transport& transport, const Group& group, int root, const Tensor& buffer,
            std::int64_t segment_bytes = kSegmentBytes);

  void start(Tag tag) override;
  bool advance() override;
  std::int64_t progress() const override { return received_ + sent_; }
  int waits_for() const override { return incoming_.empty() ? outgoing_.peer() : incoming_.peer(); }
  const char* name() const override { return "broadcast"; }
  Payload payload() const override { return {buffer_.dtype(), buffer_.numel()}; }

 private:
  std::span<std::byte> segment(std::int64_t message) const;

  Group group_;
  int index_, place_;  // in the group; in the chain
  Tensor buffer_;
  std::int64_t segment_bytes_, messages_;
  Tag tag_ = 0;
  std::int64_t receiving_ = 0, received_ = 0, sending_ = 0, sent_ = 0;
  InFlight incoming_, outgoing_;
};

}  // namespace athanor::dist
