#include "dist/collectives/ring.h"

#include "dist/collectives/slice.h"

namespace athanor::dist {
namespace {

std::int64_t largest_of(const std::vector<Range>& pieces) {
  std::int64_t most = 0;
  for (const Range& piece : pieces) most = std::max(most, piece.count());
  return most;
}

std::int64_t segment_elements(const Tensor& buffer, std::int64_t largest_piece, std::int64_t segment_bytes) {
  const auto element = static_cast<std::int64_t>(size_of(buffer.dtype()));
  return std::max<std::int64_t>(1, std::min(largest_piece, segment_bytes / element));
}

}  // namespace

std::int64_t Ring::scratch_bytes(const Tensor& buffer, int ranks, std::int64_t segment_bytes) {
  const auto element = static_cast<std::int64_t>(size_of(buffer.dtype()));
  return kWindow *
         align_elements(
             segment_elements(buffer, (buffer.numel() + ranks - 1) / ranks, segment_bytes) * element,
             kSliceAlignment);
}

Ring::Ring(Transport& transport, const Group& group, Half half, const Tensor& buffer, kernels::Combine how,
           const Tensor& scratch, std::int64_t segment_bytes, std::vector<Range> pieces)
    : group_(group),
      index_(group.index_of(transport.rank())),
      half_(half),
      buffer_(buffer),
      scratch_(scratch),
      how_(how),
      pieces_(pieces.empty() ? equal_pieces(buffer.numel(), group.size) : std::move(pieces)),
      segment_(segment_elements(buffer, largest_of(pieces_), segment_bytes)),
      window_(transport.grouped() ? 1 : kWindow),
      incoming_(transport, kWindow),
      outgoing_(transport, kWindow) {
  per_step_ = (largest_of(pieces_) + segment_ - 1) / segment_;
  messages_ = per_step_ * (group.size - 1);
}

void Ring::start(Tag tag) {
  tag_ = tag;
  receiving_ = received_ = sending_ = sent_ = 0;
}

// What a message holds: `lag` is 0 for those sent, 1 for those received, which the one before has sent.
Range Ring::segment(std::int64_t message, int lag) const {
  const int step = static_cast<int>(message / per_step_);
  const int back = step + lag + (half_ == Half::reduce_scatter ? 1 : 0);  // at most P
  const Range& piece = pieces_[static_cast<std::size_t>((index_ - back + 2 * group_.size) % group_.size)];
  const std::int64_t begin = std::min(piece.begin + message % per_step_ * segment_, piece.end);
  return {begin, std::min(begin + segment_, piece.end)};
}

std::span<std::byte> Ring::bytes(const Range& range) const {
  return bytes_of(buffer_, range);
}

std::span<std::byte> Ring::inbox(std::int64_t message, const Range& range) const {
  if (half_ == Half::all_gather) return bytes(range);
  const std::int64_t half =
      align_elements(segment_ * static_cast<std::int64_t>(size_of(buffer_.dtype())), kSliceAlignment);
  return {scratch_.raw_data() + message % kWindow * half, bytes(range).size()};
}

void Ring::take_in(std::int64_t message) {
  if (half_ == Half::all_gather) return;
  const Range range = segment(message, 1);
  const Tensor mine = slice(buffer_, range);
  const std::byte* arrived = inbox(message, range).data();
  const auto offset = (arrived - scratch_.raw_data()) / static_cast<std::int64_t>(size_of(mine.dtype()));
  on_device(mine.device(), [&](auto& context) {
    kernels::accumulate(context, how_, as_type(scratch_, mine.dtype(), offset, range.count()), mine);
  });
}

void Ring::post_receives() {
  for (; receiving_ < messages_ && receiving_ < received_ + window_; ++receiving_) {
    const Range range = segment(receiving_, 1);
    if (range.count() > 0) incoming_.receive(group_.rank(index_ - 1), tag_, inbox(receiving_, range));
  }
}

// A segment goes out when it is there: at once in the first step, else when the one before has sent it.
bool Ring::post_sends() {
  bool any = false;
  for (; sending_ < messages_ && sending_ < sent_ + window_ && sending_ < per_step_ + received_; ++sending_) {
    const Range range = segment(sending_, 0);
    if (range.count() > 0) outgoing_.send(group_.rank(index_ + 1), tag_, bytes(range));
    any = true;
  }
  return any;
}

bool Ring::advance() {
  for (bool moved = true; moved || incoming_.flush();) {
    moved = false;
    post_receives();
    while (received_ < receiving_ && (segment(received_, 1).count() == 0 || incoming_.pop())) {
      take_in(received_++);
      moved = true;
    }
    moved = post_sends() || moved;
    while (sent_ < sending_ && (segment(sent_, 0).count() == 0 || outgoing_.pop())) {
      ++sent_;
      moved = true;
    }
  }
  return received_ == messages_ && sent_ == messages_;
}

int Ring::waits_for() const {
  return incoming_.empty() ? outgoing_.peer() : incoming_.peer();
}

}  // namespace athanor::dist
