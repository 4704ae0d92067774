#pragma once

#include <vector>

#include "dist/collectives/collective.h"
#include "dist/collectives/group.h"
#include "kernels/accumulate.h"
#include "tensor/tensor.h"

namespace athanor::dist {

/// Half an all-reduce: P ranks in a ring, each of which sends to the next and receives from the one before.
///
/// The buffer is cut into P pieces. In step s (0 <= s < P - 1) of reduce_scatter, rank r sends piece r - s -
/// 1 and receives piece r - s - 2, to which it adds its own; a piece so travels once around the ring and is
/// complete, with the values of all ranks, at the rank whose number it has. In all_gather, rank r sends piece
/// r - s and receives piece r - s - 1 where it belongs, beginning with the one it owns.
///
/// Pieces travel in segments, two of them under way at a time: a segment is added, and sent on, while the
/// next is still arriving. Where messages travel in groups (Transport::grouped()), a group is one segment out
/// and one in, the same ones on all ranks.
///
/// Each half takes P - 1 steps and sends n (P - 1) / P elements per rank, which no algorithm can beat; time
/// is (P - 1)(latency + n / (P bandwidth)). The order in which a piece is summed follows from its number: the
/// bits of a result depend on P and n, not on who was late. Partial sums of halves are rounded at every step.
/// Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
class Ring final : public Collective {
 public:
  enum class Half : std::uint8_t { reduce_scatter, all_gather };

  /// Elements of a segment that may be under way; a piece has no more of them than it must.
  static constexpr std::int64_t kSegmentBytes = 1 << 20;
  static constexpr int kWindow = 2;

  /// `buffer` dense, on the transport's device. After reduce_scatter, the piece of this rank's index in the
  /// group holds the result and the rest is of no use; all_gather takes that piece and fills the rest.
  /// `pieces` tile the buffer, some may be empty; none given: piece_of(count, size, index). `scratch`, u8, at
  /// least scratch_bytes(), for reduce_scatter alone; others may use it in between.
  Ring(Transport& transport, const Group& group, Half half, const Tensor& buffer, kernels::Combine how,
       const Tensor& scratch, std::int64_t segment_bytes = kSegmentBytes, std::vector<Range> pieces = {});

  /// For equal pieces; for others, as for one rank.
  static std::int64_t scratch_bytes(const Tensor& buffer, int ranks,
                                    std::int64_t segment_bytes = kSegmentBytes);

  void start(Tag tag) override;
  bool advance() override;
  std::int64_t progress() const override { return received_ + sent_; }
  int waits_for() const override;
  const char* name() const override {
    return half_ == Half::reduce_scatter ? "ring reduce_scatter" : "ring all_gather";
  }
  Payload payload() const override { return {buffer_.dtype(), buffer_.numel()}; }

 private:
  Range segment(std::int64_t message, int lag) const;
  std::span<std::byte> bytes(const Range& range) const;
  std::span<std::byte> inbox(std::int64_t message, const Range& range) const;
  void take_in(std::int64_t message);
  void post_receives();
  bool post_sends();

  Group group_;
  int index_;
  Half half_;
  Tensor buffer_, scratch_;
  kernels::Combine how_;
  std::vector<Range> pieces_;  // by index in the group
  std::int64_t segment_;       // elements
  std::int64_t window_;        // segments under way each way
  std::int64_t per_step_ = 0;  // messages
  std::int64_t messages_ = 0;  // each way
  Tag tag_ = 0;
  // Messages begun and complete, each way. Empty segments count, but do not travel.
  std::int64_t receiving_ = 0, received_ = 0, sending_ = 0, sent_ = 0;
  InFlight incoming_, outgoing_;
};

}  // namespace athanor::dist
