#pragma once

#include "dist/collectives/collective.h"

namespace athanor::dist {

/// A phase of an all-reduce by direct exchange, with sums in the order of ranks.
///
/// The buffer is cut into P pieces. In reduce_scatter, every rank sends each other one the piece that is the
/// other's, and combines the P versions of its own as ((rank 0 + rank 1) + rank 2) + ..., halves in f32 with
/// one rounding at the end. In all_gather, every rank sends its piece to all others. All messages are under
/// way at once.
///
/// Each phase is one step of P - 1 messages per rank, n (P - 1) / P elements in all: as much as a ring, but
/// from everyone to everyone. For ranks that are all near each other, and for small messages: one latency.
///
/// The bits of an element follow from the P values it is made of and from nothing else: not from timing, nor
/// from n or where the element lies. For halves the error does not grow with P.
class RankOrder final : public PointToPoint {
 public:
  /// As Ring: this rank's piece is what reduce_scatter makes and all_gather begins with.
  RankOrder(Transport& transport, const Group& group, PhaseOf of);

  /// This rank's piece as every rank has it: about the size of the buffer where pieces are equal.
  static std::int64_t scratch_bytes(const Tensor& buffer, std::int64_t largest_piece, int ranks);

  void start(Tag tag) override;
  bool advance() override;

 private:
  const Range& piece(int index) const { return of_.pieces[static_cast<std::size_t>(index)]; }

  PhaseOf of_;
  Tensor rows_;  // this rank's piece as each rank has it
  bool combined_ = false;
};

}  // namespace athanor::dist
