#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/bucket_layout.h"
#include "dist/bucket_runner.h"
#include "dist/collectives/communicator.h"
#include "dist/collectives/exchange.h"
#include "dist/stop_vote.h"
#include "kernels/random_op.h"
#include "kernels/step_rules.h"
#include "optim/arena.h"
#include "optim/step_buffer.h"

namespace athanor::dist {

struct SyncOptions {
  Overlap overlap = Overlap::thread;
  /// Which of several arenas this is: ranks that reduce others at a time are told, instead of adding up what
  /// does not belong together.
  std::int32_t number = 0;
};

/// What DDP and ZeRO-1 share: the gradients of all ranks are added up while the backward pass still runs, and
/// ranks agree on what the step does with them.
///
///     arena.zero_grad();
///     {
///       const SampleScope scope({first of this rank's samples in the batch of all, how many});
///       loss = ...
///       backward_scaled(loss, step, batch_weight(how many, samples of all ranks));
///     }
///     sync.reduce(step, limits);        // instead of GradientMeter::measure()
///     optimizer.step(step);
///     finish_step(step);
///     zero1.gather_weights();           // where it is ZeRO-1
///
/// Gradients are summed over ranks: the weight makes the sum the mean over all samples. The scope has masks
/// (dropout) belong to samples: `step` has the same seed on all ranks. With micro-batches,
/// the samples are those of all ranks and micro-batches of the step, and all passes but the last run under a
/// NoSync.
///
/// Gradients live in the arena and are sent from there. A hook on each parameter counts its bucket down when
/// the backward pass has made its last contribution; a bucket that is complete, with all before it, is on its
/// way. What a pass has not touched joins with zeros. Layers may be frozen and unfrozen between reduce() and
/// the next backward pass, on all ranks alike.
///
/// Every rank must run the same number of steps. Calls in another order throw ArgumentError: a second pass
/// without no_sync(), no_sync() after the last pass, a pass or reduce() without zero_grad() since the last
/// reduce(). Whoever catches it must not go on with the step, to whose gradients a pass has added.
class GradientSync {
 public:
  virtual ~GradientSync();
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  const BucketLayout& layout() const { return layout_; }
  Communicator& comm() const { return comm_; }
  ParameterArena& arena() const { return arena_; }

  /// While alive, backward passes add up their gradients and send none: all micro-batches of a step but the
  /// last. Forward passes do not matter. Throws ArgumentError when the step's last pass has begun to send.
  class NoSync {
   public:
    explicit NoSync(GradientSync& sync);
    ~NoSync() { --sync_.silent_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    GradientSync& sync_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// Completes the step's gradients on all ranks, and sets norm, found_inf and clipping of `step` as
  /// GradientMeter::measure() does, from the squares of all shards, in f64, in the order of ranks: the same
  /// bits on every rank. A parameter with a gradient on any rank has one on all then. Waits once for the
  /// other ranks, and for the device: counted. Returns the outcome() of all votes; where it stops(), nothing
  /// is measured, and the step must not be made. Throws PeerLostError; ArgumentError where it was called
  /// since zero_grad(), and, on all ranks, where they reduce different arenas (SyncOptions::number).
  StopVote reduce(StepBuffer& step, const GradientLimits& limits = {}, const StopVote& vote = {});

  /// Names of parameters that asked for a gradient in the last step, and had none on that rank.
  std::vector<std::string> unused(int rank) const;

  /// Returns when nothing is under way between two steps (ZeRO-1 may still gather weights): before the
  /// network is used otherwise, or weights are read otherwise than by calls of modules. Throws PeerLostError.
  virtual void settle() {}
  /// After anything has written to masters: every rank's new weights to all, where ranks have a part of them.
  virtual void gather_weights() {}
  /// That of an arena that one rank has as a whole. A call of all ranks.
  virtual std::uint64_t weights_hash() { return arena_.weights_hash(); }

  /// Buffers (running statistics) of rank 0 to all: before one evaluates or saves.
  void broadcast_buffers();

 protected:
  enum class Kind : std::uint8_t { all_reduce, reduce_scatter };

  /// Compares layouts, then takes weights and buffers from rank 0. Throws ArgumentError where a rank has
  /// another layout, naming it; PeerLostError.
  GradientSync(const char* name, Kind kind, ParameterArena& arena, Communicator& comm,
               const SyncOptions& options);

  /// Called when a step's first gradient comes. Throws ArgumentError where it must not begin yet.
  virtual void check_weights() {}
  /// Called whenever an op of a sharded arena's model has read the parameter, where it asks for a gradient.
  virtual void read(int) {}

 private:
  void take_values_of_rank_0();
  std::vector<std::unique_ptr<Collective>> make_collectives(Kind kind);
  bool watches(int parameter) const;
  void watch();
  void begin_step();
  void ready(int parameter);
  void launch_complete();
  void join_with_zeros(int bucket);
  StopVote agree(StepBuffer& step, const GradientLimits& limits, const StopVote& vote);
  void check_numbers() const;
  void take_flags();
  struct Said;
  Said& said_by(int rank) const;
  char* flags_of(int rank) const;

  const char* name_;
  std::int32_t number_;
  Kind kind_;
  ParameterArena& arena_;
  Communicator& comm_;
  BucketLayout layout_;
  int silent_ = 0;                           // scopes of no_sync()
  bool begun_ = false;                       // a pass of this step has delivered something
  std::int64_t reduced_ = -1;                // ParameterArena::zeroed() of the step that was reduced last
  std::vector<Ref<AutogradState>> watched_;  // per parameter: the leaf that has the hook
  std::vector<char> arrived_;                // per parameter: is complete in this step
  std::vector<int> missing_;                 // per bucket: parameters that are not
  // The agreement: of every rank a row of the squares of its shards, what it says, and a flag per parameter.
  Exchange rows_;
  std::vector<StopVote> votes_;
  Tensor squares_;
  BucketRunner runner_;
};

/// What a rank's mean loss weighs in that of all samples: its part of them. With micro-batches, `samples` are
/// those of one, and `samples_of_all` those of all ranks and micro-batches.
float batch_weight(std::int64_t samples, std::int64_t samples_of_all);

}  // namespace athanor::dist
