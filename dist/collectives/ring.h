#pragma once

#include "dist/collectives/collective.h"

namespace athanor::dist {

/// A phase of an all-reduce: P ranks in a ring, each of which sends to the next and receives from the one
/// before.
///
/// The buffer is cut into P pieces. In step s (0 <= s < P - 1) of reduce_scatter, rank r sends piece r - s -
/// 1 and receives piece r - s - 2, to which it adds its own; a piece so travels once around the ring and is
/// complete, with the values of all ranks, at the rank whose number it has. In all_gather, rank r sends piece
/// r - s and receives piece r - s - 1 where it belongs, beginning with the one it owns.
///
/// Pieces travel in segments, two of them under way at a time: a segment is added, and sent on, while the
/// next is still arriving. Where messages travel in groups (Transport::grouped()), a group is one segment out
/// and one in.
///
/// Each phase takes P - 1 steps and sends n (P - 1) / P elements per rank, which no algorithm can beat; time
/// is (P - 1)(latency + n / (P bandwidth)). The order in which a piece is summed follows from its number: the
/// bits of a result depend on P and n, not on who was late. Partial sums of halves are rounded at every step.
/// Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
class Ring final : public PointToPoint {
 public:
  /// After reduce_scatter, the piece of this rank's index in the group holds the result and the rest is of no
  /// use; all_gather takes that piece and fills the rest. Takes scratch_bytes().
  Ring(Transport& transport, const Group& group, PhaseOf of);

  /// Whatever the pieces are.
  static std::int64_t scratch_bytes(const Tensor& buffer, std::int64_t segment_bytes);

  void start(Tag tag) override;
  bool advance() override;

 private:
  static constexpr int kWindow = 2;

  Range segment(std::int64_t message, int lag) const;
  Tensor inbox(std::int64_t message, const Range& range) const;
  void take_in(std::int64_t message);
  void post_receives();
  bool post_sends();

  PhaseOf of_;
  std::int64_t segment_;       // elements
  std::int64_t window_;        // segments under way each way
  std::int64_t per_step_ = 0;  // messages
  std::int64_t messages_ = 0;  // each way
  // Messages begun, each way. Empty segments count, but do not travel.
  std::int64_t receiving_ = 0, sending_ = 0;
};

}  // namespace athanor::dist
