#pragma once  // Explained in docs/the_ring.md.

#include "dist/collectives/collective.h"

namespace athanor::dist {

/// A phase of an all-reduce in a ring of P ranks: each sends to the next rank and receives from the previous
/// one.
///
/// The buffer is cut into P pieces. In step s (0 <= s < P - 1) of reduce_scatter, rank r sends piece r - s -
/// 1 and receives piece r - s - 2, to which it adds its own values. So each piece goes around the ring once
/// and is complete at the rank with its number. In all_gather, rank r sends piece r - s and stores piece r -
/// s - 1, beginning with its own piece.
///
/// Pieces are sent in segments, two in flight at a time: a segment is added and passed on while the next one
/// arrives. If messages are sent in groups (Transport::grouped()), a group is one segment out and one in.
///
/// Each phase takes P - 1 steps and sends n (P - 1) / P elements per rank, the lower bound. The time is (P -
/// 1)(latency + n / (P bandwidth)). A piece's number determines its summation order: the bits depend on P and
/// n, not on timing. Partial sums of halves are rounded at every step. Source: Patarasuk and Yuan 2009,
/// "Bandwidth optimal all-reduce algorithms for clusters of workstations".
class Ring final : public PointToPoint {
 public:
  /// After reduce_scatter, the piece of this rank's index in the group is the result, and the rest is
  /// undefined; all_gather sends that piece and fills the rest. Needs scratch_bytes().
  Ring(Transport& transport, const Group& group, PhaseOf of);

  /// Valid for any pieces.
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
  std::int64_t window_;        // segments in flight each way
  std::int64_t per_step_ = 0;  // messages
  std::int64_t messages_ = 0;  // each way
  // Messages started, each way. Empty segments count but are not sent.
  std::int64_t receiving_ = 0, sending_ = 0;
};

}  // namespace athanor::dist
