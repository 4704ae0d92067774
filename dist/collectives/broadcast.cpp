#include "dist/collectives/broadcast.h"

namespace athanor::dist {

Broadcast::Broadcast(Transport& transport, const Group& group, int root, const Tensor& buffer,
                     std::int64_t segment_bytes)
    : PointToPoint("broadcast", transport, group, buffer, {}, 2),
      chain_index_((index_ - group.index_of(root) + group.size) % group.size),
      segment_bytes_(segment_bytes),
      messages_((static_cast<std::int64_t>(buffer.bytes()) + segment_bytes - 1) / segment_bytes) {}

void Broadcast::start(Tag tag) {
  tag_ = tag;
  receiving_ = received_ = chain_index_ == 0 ? messages_ : 0;
  sending_ = sent_ = chain_index_ == group_.size - 1 ? messages_ : 0;
}

std::span<std::byte> Broadcast::segment(std::int64_t message) const {
  const std::int64_t begin = message * segment_bytes_;
  const std::int64_t end = std::min(begin + segment_bytes_, static_cast<std::int64_t>(buffer_.bytes()));
  return {buffer_.raw_data() + begin, static_cast<std::size_t>(end - begin)};
}

bool Broadcast::advance() {
  // Groups need not be alike here: bytes go one way along the chain, so that nobody waits in a circle.
  for (bool moved = true; moved || incoming_.flush();) {
    moved = false;
    for (; receiving_ < messages_ && !incoming_.full(); ++receiving_)
      incoming_.receive(group_.rank(index_ - 1), tag_, segment(receiving_));
    while (incoming_.pop()) ++received_, moved = true;
    for (; sending_ < received_ && !outgoing_.full(); ++sending_)
      outgoing_.send(group_.rank(index_ + 1), tag_, segment(sending_));
    while (outgoing_.pop()) ++sent_, moved = true;
  }
  return received_ == messages_ && sent_ == messages_;
}

}  // namespace athanor::dist
