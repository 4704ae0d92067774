#pragma once

#include "dist/collectives/collective.h"

namespace athanor::dist {

/// Everyone gets what rank `root` has.
///
/// The ranks form a chain that begins at the root. The buffer travels along it in segments, each of which is
/// sent on while the next arrives: P - 2 + n / segment steps, n elements received and sent once by everyone
/// but the two ends. A large buffer takes the time of one transfer, whatever P.
class Broadcast final : public PointToPoint {
 public:
  /// `buffer` dense, on the transport's device.
  Broadcast(Transport& transport, const Group& group, int root, const Tensor& buffer,
            std::int64_t segment_bytes);

  void start(Tag tag) override;
  bool advance() override;

 private:
  std::span<std::byte> segment(std::int64_t message) const;

  int chain_index_;
  std::int64_t segment_bytes_, messages_;
  std::int64_t receiving_ = 0, sending_ = 0;  // messages begun
};

}  // namespace athanor::dist
