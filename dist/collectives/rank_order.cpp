#include "dist/collectives/rank_order.h"

#include "dist/collectives/slice.h"
#include "kernels/on_device.h"

namespace athanor::dist {

std::int64_t RankOrder::scratch_bytes(const Tensor& buffer, std::int64_t largest_piece, int ranks) {
  return largest_piece * ranks * static_cast<std::int64_t>(size_of(buffer.dtype()));
}

RankOrder::RankOrder(Transport& transport, const Group& group, PhaseOf of)
    : PointToPoint(of.phase == Phase::all_gather ? "rank_order all_gather" : "rank_order reduce_scatter",
                   transport, group, of.buffer, of.scratch, group.size),
      of_(std::move(of)) {
  if (of_.phase == Phase::all_gather || group.size == 1) return;
  const std::int64_t mine = piece(index_).count();
  rows_ = as_type(scratch_, buffer_.dtype(), 0, group.size * mine)
              .view_as_strided({group.size, mine}, {mine, 1}, 0);
}

void RankOrder::start(Tag tag) {
  received_ = sent_ = 0;
  combined_ = of_.phase == Phase::all_gather || group_.size == 1;
  const Range mine = piece(index_);
  const auto row = [&](int i) { return Range{i * mine.count(), (i + 1) * mine.count()}; };
  // Nearest ranks first, so that not every rank begins with rank 0.
  for (int away = 1; away < group_.size; ++away) {
    const int from = (index_ - away + group_.size) % group_.size, to = (index_ + away) % group_.size;
    const Range theirs = piece(from);
    if (of_.phase == Phase::all_gather) {
      if (theirs.count() > 0) incoming_.receive(group_.rank(from), tag, bytes_of(buffer_, theirs));
      if (mine.count() > 0) outgoing_.send(group_.rank(to), tag, bytes_of(buffer_, mine));
    } else {
      if (mine.count() > 0) incoming_.receive(group_.rank(from), tag, bytes_of(rows_, row(from)));
      if (piece(to).count() > 0) outgoing_.send(group_.rank(to), tag, bytes_of(buffer_, piece(to)));
    }
  }
  incoming_.flush();
}

bool RankOrder::advance() {
  incoming_.flush();
  while (incoming_.pop()) ++received_;
  while (outgoing_.pop()) ++sent_;
  if (!incoming_.empty()) return false;
  if (!combined_) {
    combined_ = true;
    const Range mine = piece(index_);
    if (mine.count() > 0) {
      const Tensor own = slice(buffer_, mine);
      slice(rows_, {index_ * mine.count(), (index_ + 1) * mine.count()}).copy_bytes_from(own);
      on_device(own.device(), [&](auto& context) { kernels::combine_rows(context, of_.how, rows_, own); });
    }
  }
  return outgoing_.empty();
}

}  // namespace athanor::dist
