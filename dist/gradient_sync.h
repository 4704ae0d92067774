#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/bucket_layout.h"
#include "dist/collectives/communicator.h"
#include "dist/step_agreement.h"
#include "kernels/random_op.h"
#include "kernels/step_rules.h"
#include "optim/arena.h"
#include "optim/step_buffer.h"

namespace athanor::dist {

class BucketRunner;
class Exchange;

struct SyncOptions {
  Overlap overlap = Overlap::thread;
  /// The index of the arena among several: ranks that reduce different arenas get an error instead of a wrong
  /// sum.
  std::int32_t number = 0;
  /// Whose votes reduce() sends along and settles; null: every step is made.
  StepAgreement* agreement = nullptr;
};

/// The common part of DDP and ZeRO-1: sums the gradients of all ranks during the backward pass, and lets
/// ranks agree on how the step uses them.
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
/// Gradients are summed over ranks; the weight makes the sum the mean over all samples. In the scope, masks
/// (dropout) belong to samples: `step` has the same seed on all ranks. With micro-batches, the samples are
/// those of all ranks and micro-batches of the step, and all passes but the last run under a NoSync.
///
/// Gradients stay in the arena and are sent from there. A hook on each parameter counts its bucket down after
/// the last contribution of the backward pass. A bucket is sent when it and all before it are complete.
/// Gradients without a contribution count as zeros. Layers may be frozen and unfrozen between reduce() and
/// the next backward pass, on all ranks alike.
///
/// Every rank must run the same number of steps. Calls in a wrong order throw ArgumentError: a second pass
/// without no_sync(), no_sync() after the last pass, a pass or reduce() without zero_grad() since the last
/// reduce(). After such an error the step must be abandoned, as a pass has changed its gradients.
class GradientSync {
 public:
  virtual ~GradientSync();
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  const BucketLayout& layout() const { return layout_; }
  Communicator& comm() const { return comm_; }
  ParameterArena& arena() const { return arena_; }

  /// While alive, backward passes accumulate gradients without sending: for all micro-batches of a step but
  /// the last. Forward passes are not affected. Throws ArgumentError if the last pass has begun to send.
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
  /// GradientMeter::measure() does. Squares of all shards are summed in f64, in rank order: the same bits on
  /// every rank. A parameter with a gradient on any rank then has one on all. Waits once for the other ranks,
  /// and for the device: counted. If the agreement's outcome() stops(), nothing is measured and the step must
  /// not be made. Throws PeerLostError; ArgumentError on a second call since zero_grad() and,
  /// on all ranks, if they reduce different arenas (SyncOptions::number).
  void reduce(StepBuffer& step, const GradientLimits& limits = {});

  /// Names of parameters that needed a gradient in the last step but got none on that rank.
  std::vector<std::string> unused(int rank) const;

  /// Waits for all communication in flight between two steps (ZeRO-1 may still gather weights). Call it
  /// before using the network otherwise, or reading weights outside calls of modules. Throws PeerLostError.
  virtual void settle() {}
  /// After writing to masters: sends every rank's new weights to all, if ranks have only parts.
  virtual void gather_weights() {}
  /// The hash as if one rank had the whole arena. A call of all ranks.
  virtual std::uint64_t weights_hash() { return arena_.weights_hash(); }

  /// Broadcasts the buffers (running statistics) of rank 0: before evaluating or saving.
  void broadcast_buffers();

 protected:
  enum class Kind : std::uint8_t { all_reduce, reduce_scatter };

  /// Compares layouts, then copies weights and buffers from rank 0. Throws ArgumentError naming a rank with
  /// another layout; PeerLostError.
  GradientSync(const char* name, Kind kind, ParameterArena& arena, Communicator& comm,
               const SyncOptions& options);

  /// Called for a step's first gradient. Throws ArgumentError if the step must not begin yet.
  virtual void check_weights() {}
  /// Called when an op of a sharded arena's model has read the parameter, if it needs a gradient.
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
  void measure(StepBuffer& step, const GradientLimits& limits);
  void check_numbers() const;
  void take_flags();
  struct AgreementRow;
  AgreementRow& row_of(int rank) const;
  char* flags_of(int rank) const;

  const char* name_;
  std::int32_t number_;
  StepAgreement* agreement_;
  Kind kind_;
  ParameterArena& arena_;
  Communicator& comm_;
  BucketLayout layout_;
  int silent_ = 0;                           // scopes of no_sync()
  bool begun_ = false;                       // a pass of this step has made a contribution
  std::int64_t reduced_ = -1;                // ParameterArena::zeroed() of the last reduced step
  std::vector<Ref<AutogradState>> watched_;  // per parameter: the leaf with the hook
  std::vector<char> arrived_;                // per parameter: complete in this step
  std::vector<int> missing_;                 // per bucket: number of incomplete parameters
  // A row per rank with the squares of its shards, its vote, and a flag per parameter.
  std::unique_ptr<Exchange> rows_;
  Tensor squares_;
  std::unique_ptr<BucketRunner> runner_;
};

/// The weight of a rank's mean loss in that of all samples. With micro-batches, `samples` counts one of them,
/// and `samples_of_all` those of all ranks and micro-batches.
float batch_weight(std::int64_t samples, std::int64_t samples_of_all);

}  // namespace athanor::dist
