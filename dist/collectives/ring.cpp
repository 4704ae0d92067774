// Explained in docs/the_ring.md.
#include "dist/collectives/ring.h"

#include "dist/collectives/slice.h"
#include "kernels/on_device.h"

namespace athanor::dist {
namespace {

std::int64_t segment_elements(const Tensor& buffer, std::int64_t largest_piece, std::int64_t segment_bytes) {
  const auto element = static_cast<std::int64_t>(size_of(buffer.dtype()));
  return std::max<std::int64_t>(1, std::min(largest_piece, segment_bytes / element));
}

}  // namespace

std::int64_t Ring::scratch_bytes(const Tensor& buffer, std::int64_t segment_bytes) {
  const auto element = static_cast<std::int64_t>(size_of(buffer.dtype()));
  const std::int64_t segment = segment_elements(buffer, buffer.numel(), segment_bytes);
  return kWindow * align_elements(segment * element, kSliceAlignment);
}

Ring::Ring(Transport& transport, const Group& group, PhaseOf of)
    : PointToPoint(of.name                         ? of.name
                   : of.phase == Phase::all_gather ? "ring all_gather"
                                                   : "ring reduce_scatter",
                   transport, group, of.buffer, of.scratch, kWindow),
      of_(std::move(of)),
      segment_(segment_elements(buffer_, largest_of(of_.pieces), of_.segment_bytes)),
      window_(transport.grouped() ? 1 : kWindow) {
  per_step_ = (largest_of(of_.pieces) + segment_ - 1) / segment_;
  messages_ = per_step_ * (group.size - 1);
}

void Ring::start(Tag tag) {
  tag_ = tag;
  receiving_ = received_ = sending_ = sent_ = 0;
}

// The segment of a message: `lag` is 0 for sent ones, 1 for received ones, which the previous rank sent.
Range Ring::segment(std::int64_t message, int lag) const {
  const int step = static_cast<int>(message / per_step_);
  const int back = step + lag + (of_.phase == Phase::reduce_scatter ? 1 : 0);  // at most P
  const Range& piece = of_.pieces[static_cast<std::size_t>((index_ - back + 2 * group_.size) % group_.size)];
  const std::int64_t begin = std::min(piece.begin + message % per_step_ * segment_, piece.end);
  return {begin, std::min(begin + segment_, piece.end)};
}

// The destination of a message.
Tensor Ring::inbox(std::int64_t message, const Range& range) const {
  if (of_.phase == Phase::all_gather) return slice(buffer_, range);
  const DType dtype = buffer_.dtype();
  const std::int64_t stride = align_elements(segment_, kSliceAlignment / size_of(dtype));
  return as_type(scratch_, dtype, message % kWindow * stride, range.count());
}

void Ring::take_in(std::int64_t message) {
  if (of_.phase == Phase::all_gather) return;
  const Range range = segment(message, 1);
  on_device(buffer_.device(), [&](auto& context) {
    kernels::accumulate(context, of_.how, inbox(message, range), slice(buffer_, range));
  });
}

void Ring::post_receives() {
  for (; receiving_ < messages_ && receiving_ < received_ + window_; ++receiving_) {
    const Range range = segment(receiving_, 1);
    if (range.count() > 0)
      incoming_.receive(group_.rank(index_ - 1), tag_,
                        bytes_of(inbox(receiving_, range), {0, range.count()}));
  }
}

// A segment is sent once available: at once in the first step, else after it has arrived.
bool Ring::post_sends() {
  bool any = false;
  for (; sending_ < messages_ && sending_ < sent_ + window_ && sending_ < per_step_ + received_; ++sending_) {
    const Range range = segment(sending_, 0);
    if (range.count() > 0) outgoing_.send(group_.rank(index_ + 1), tag_, bytes_of(buffer_, range));
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

}  // namespace athanor::dist
