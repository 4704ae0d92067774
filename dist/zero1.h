#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dist/gradient_sync.h"
#include "nn/module.h"

namespace athanor::dist {

/// Options for an arena that keeps, from the start, the masters of this rank's shard alone; `comm` is
/// Zero1's. Making the arena is a call of all ranks, who compare layouts and take rank 0's values, parameter
/// by parameter, before any is cast. It throws ArgumentError naming a rank with another layout;
/// PeerLostError.
ArenaOptions sharded(ArenaOptions options, Communicator& comm, const BucketOptions& buckets = {});

/// ZeRO stage 1: every rank holds all weights in compute precision, but masters and optimizer state of its
/// shard alone, an equal piece of every bucket. Gradients are reduced to their owners, who update, and the
/// new weights are gathered: as many bytes as DDP sends, and the same bits (with Algorithm::native only where
/// the library adds in one order for both; MPI and NCCL promise none).
///
/// Bytes per rank with N parameters, padding included, 16-bit weights, g of a gradient and AdamW: 2 N + g N +
/// 12 N / P, where DDP takes 2 N + g N + 12 N; with f32 weights, which are their own masters, 4 N + 4 N + 8 N
/// / P. Ema adds 4 N / P. No tensor of N f32 masters, moments or averages exists at any time.
///
///     ParameterArena arena(model.parameters(), model.buffers(), dist::sharded({.precision = ...}, comm));
///     Zero1 zero1(arena, comm);
///     AdamW optimizer(arena);
///     ...
///     zero1.reduce(step, limits);
///     optimizer.step(step);
///     finish_step(step);
///     zero1.gather_weights();           // or the next step throws ArgumentError
///
/// Optimizers that treat elements alike (SGD, Adam, AdamW) take any shards; Muon needs
/// BucketOptions::whole_parameters: the rank that keeps a matrix updates it, and N / P is an average. Source:
/// Rajbhandari et al. 2020, "ZeRO", arXiv:1910.02054, section 5.1.
class Zero1 final : public GradientSync {
 public:
  /// For an arena made with sharded() options. Throws as GradientSync does, and ArgumentError where the arena
  /// is sharded in another way.
  Zero1(ParameterArena& arena, Communicator& comm, const SyncOptions& options = {});
  /// Waits for what is under way, unless an exception is on its way.
  ~Zero1() override;

  /// Every rank's new weights to all, in the order in which the next forward pass reads them: after the
  /// optimizer's step and whatever else writes to masters (averages swapped in, a state that is loaded),
  /// before which settle() comes. Throws PeerLostError.
  void gather_weights() override;

  /// Whether to believe at once that a model's parameters are read in calls of the modules that have them.
  enum class Trust : std::uint8_t {
    now,
    after_a_step,  ///< once a forward pass has shown it; never where one has shown otherwise
  };
  /// From now on gather_weights() only begins, and calls of modules wait for the buckets of their own
  /// parameters: the first layers compute while the weights of the last ones travel. `model` must have all
  /// parameters of the arena, run them by calls of its modules, not of their forward(), and live until
  /// end_overlap(). An op that is recorded and reads weights nobody waited for is an ArgumentError. Every
  /// rank may decide for itself; the bits are the same.
  void overlap_gather(nn::Module& model, Trust trust = Trust::now);
  /// gather_weights() waits again, and the model's modules are let go of.
  void end_overlap();

  /// Whether the optimizer has not stepped since gather_weights().
  bool gathered() const { return gathered_ == arena().updates(); }
  void settle() override;
  std::uint64_t weights_hash() override;
  /// Seconds that calls of modules have waited since the last call of this.
  double take_waited_s() { return std::exchange(waited_s_, 0); }

 private:
  enum class Look : std::uint8_t { off, looking, passed, failed };

  void make_runner(Overlap overlap);
  void wait_for(int count);
  int place_of_bucket(int bucket) const { return static_cast<int>(layout().buckets().size()) - bucket; }
  void check_weights() override;
  void read(int parameter) override;

  Overlap overlap_;
  std::unique_ptr<BucketRunner> gathers_;  // the last bucket first
  std::vector<nn::Module*> hooked_;        // modules whose calls wait
  Look look_ = Look::off;                  // passed: they do; else gather_weights() does
  bool read_any_ = false;                  // while looking,
  std::vector<char> called_;               // and by parameter: a module that has it, since the last gather
  bool gathering_ = false;
  int waited_ = 0;  // gathers, in their order
  double waited_s_ = 0;
  std::int64_t gathered_ = 0;  // ParameterArena::updates() that all ranks have
  int exceptions_ = 0;
};

}  // namespace athanor::dist
