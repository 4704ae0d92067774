#pragma once

#include "dist/collectives/collective.h"

namespace athanor::dist {

/// A phase of an all-reduce by direct exchange, with sums in the order of ranks.
///
/// The buffer is cut into P pieces. In reduce_scatter, every rank sends each other rank that rank's piece. It
/// combines the P versions of its own piece as ((rank 0 + rank 1) + rank 2) + ..., halves in f32 with one
/// rounding at the end. In all_gather, every rank sends its piece to all others. All messages are in flight
/// at once.
///
/// Each phase is one step of P - 1 messages per rank, n (P - 1) / P elements in all: as much as a ring, but
/// between all pairs. It suits ranks that are close to each other, and small messages: one latency.
///
/// The bits of an element depend only on its P values: not on timing, n or its position. For halves the error
/// does not grow with P.
class RankOrder final : public PointToPoint {
 public:
  /// As Ring: reduce_scatter produces this rank's piece, and all_gather sends it.
  RankOrder(Transport& transport, const Group& group, PhaseOf of);

  /// Memory for all ranks' versions of this rank's piece: about the buffer's size if pieces are equal.
  static std::int64_t scratch_bytes(const Tensor& buffer, std::int64_t largest_piece, int ranks);

  void start(Tag tag) override;
  bool advance() override;

 private:
  const Range& piece(int index) const { return of_.pieces[static_cast<std::size_t>(index)]; }

  PhaseOf of_;
  Tensor rows_;  // this rank's piece, from each rank
  bool combined_ = false;
};

}  // namespace athanor::dist
