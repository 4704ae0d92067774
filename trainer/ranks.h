#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dist/collectives/exchange.h"
#include "dist/ddp.h"
#include "dist/gather_state.h"
#include "dist/sync_batch_norm.h"
#include "dist/zero1.h"
#include "optim/arena.h"
#include "optim/optimizer.h"
#include "optim/step.h"
#include "tensor/state_dict.h"
#include "trainer/callback.h"
#include "trainer/config.h"
#include "trainer/signals.h"

namespace athanor {

/// What a Trainer does together with the other ranks of its job. On one rank, all of it is nothing. Every
/// rank makes the same calls in the same order. Throws PeerLostError where a rank is gone.
class Ranks {
 public:
  /// `transport` may be null: one rank.
  Ranks(dist::Transport* transport, const TrainerConfig& config);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  bool alone() const { return !comm_; }
  int rank() const { return comm_ ? comm_->rank() : 0; }
  int world_size() const { return comm_ ? comm_->world_size() : 1; }
  bool first() const { return rank() == 0; }
  Strategy strategy() const { return strategy_; }
  bool sharded() const { return zero1_ != nullptr; }

  /// "single", "ddp on 4 ranks (mpirun)", "single (--devices auto: no GPU in use)".
  std::string describe(const TrainerConfig& config) const;
  /// For StepState: ranks that shared one would drop the same elements of their different samples.
  std::uint64_t seed(std::uint64_t seed) const { return dist::rank_seed(seed, rank()); }

  // The model.

  /// Options for an arena that these ranks share.
  ArenaOptions shared(const ArenaOptions& options) const;
  /// Compares layouts and takes rank 0's values.
  void share(ParameterArena& arena);
  /// Ends that: before the arena goes.
  void let_go();
  /// With --sync-bn: the model's batch norms see the samples of all ranks until what is returned, or the
  /// model, goes. Then each rank runs every pass, even with no samples of its own: joins_norms(). Else null.
  std::unique_ptr<dist::SyncBatchNorm> join_norms(nn::Module& model) const;
  bool joins_norms() const { return sync_bn_ && !alone(); }
  /// For a backward pass that is not the step's last: keeps its gradients to itself while alive.
  std::optional<dist::GradientSync::NoSync> keep_to_itself(bool last);
  /// Gradients of all, and what becomes of the step; false on one rank, where the caller does it.
  bool reduce(StepBuffer& step, const GradientLimits& limits);
  /// Names of the parameters that no gradient reached in the step that was reduced last, on that rank; none
  /// where none reached any, because it had no samples.
  std::vector<std::string> unused(int rank) const;
  /// With ZeRO-1, until what is returned goes, which must be before the model does: weights travel while the
  /// next forward pass computes, once a step has shown that it reads them in calls of its modules. Only where
  /// all ranks `may`, and the config says so; else null.
  class GatherOverlap;
  std::unique_ptr<GatherOverlap> overlap_gather(nn::Module& model, bool may);
  bool overlaps_gather() const { return overlaps_gather_; }
  /// Sends the weights that the optimizer has changed since, of this rank to all; where that is overlapped,
  /// only begins. The network must be free.
  void begin_gather();
  /// And returns when they are there.
  void complete_weights();
  /// Seconds that forward passes have waited for weights since the last call.
  double take_waited_s() { return zero1_ ? zero1_->take_waited_s() : 0; }
  std::uint64_t weights_hash(const ParameterArena& arena);
  /// Throws Error, on all ranks, where it is not the same everywhere: `hash` is that of weights which each
  /// rank has computed for itself.
  void check_weights(std::uint64_t hash);
  /// Running statistics of rank 0 to all: before one evaluates.
  void share_buffers();
  /// Rank 0 calls `write` with what `make` gives there, of which it may read each tensor as a whole, wherever
  /// its parts are. The others wait for it: dist::gather_state().
  using WriteState = std::function<void(const StateDict&, const dist::ReadTensor&)>;
  void write_state(const std::function<StateDict()>& make, const WriteState& write);

  // What is agreed on.

  /// What a rank would like after a step.
  struct Wish {
    std::int32_t signal = 0;       ///< that it has caught
    std::int32_t out_of_time = 0;  ///< only rank 0's clock counts
    std::int32_t stop = -1;        ///< a StoppedBy that a callback has decided on; -1: none
    std::int32_t from = 0;         ///< set by agree(): whose `stop` it is
  };
  /// The same on all ranks: any signal, rank 0's time, and the wish of the lowest rank that has one.
  Wish agree(const Wish& mine);
  /// Sums over all ranks, in their order: the same bits everywhere.
  void add_up(std::span<double> values);
  /// One row per rank.
  std::vector<double> gather(std::span<const double> mine);
  std::vector<std::string> gather(const std::string& mine);
  /// Rank 0 calls `work`. What it throws there, all throw: one mistake, one line, and nobody waits.
  void first_does(const std::function<void()>& work);
  /// Rank 0's, to all.
  std::string of_first(const std::string& text);
  /// Throws ArgumentError, on all ranks alike, naming each of the settings (texts) that a rank has otherwise
  /// than rank 0, or has and rank 0 has not, or the other way round.
  void check_same(const StateDict& settings);

  /// Seconds spent in all of the above since the last call.
  double take_seconds();

 private:
  class Timed;
  Strategy strategy_ = Strategy::single;
  dist::BucketOptions buckets_;
  dist::Overlap overlap_;
  bool sync_bn_;
  bool overlaps_gather_ = false;
  std::unique_ptr<dist::Communicator> comm_;
  std::unique_ptr<dist::GradientSync> sync_;
  dist::Zero1* zero1_ = nullptr;  // sync_, where it is one
  std::unique_ptr<dist::Exchange> wishes_;
  double seconds_ = 0;
};

class Ranks::GatherOverlap {
 public:
  explicit GatherOverlap(Ranks& ranks) : ranks_(ranks) { ranks_.overlaps_gather_ = true; }
  ~GatherOverlap() {
    ranks_.overlaps_gather_ = false;
    if (ranks_.zero1_) ranks_.zero1_->end_overlap();
  }
  GatherOverlap(const GatherOverlap&) = delete;
  GatherOverlap& operator=(const GatherOverlap&) = delete;

 private:
  Ranks& ranks_;
};

}  // namespace athanor
