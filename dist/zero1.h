#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dist/gradient_sync.h"
#include "nn/module.h"

namespace athanor::dist {

/// Options for an arena that from the start keeps only the masters of this rank's shard; `comm` is Zero1's.
/// Creating the arena is a call of all ranks, which compare layouts and copy rank 0's values, parameter by
/// parameter, before casts. It throws ArgumentError naming a rank with another layout; PeerLostError.
ArenaOptions sharded(ArenaOptions options, Communicator& comm, const BucketOptions& buckets = {});

/// ZeRO stage 1: every rank holds all weights in compute precision, but masters and optimizer state only of
/// its shard, an equal piece of every bucket. Gradients are reduced to their owners, who update; then the new
/// weights are gathered. It sends as many bytes as DDP, with the same bits (with Algorithm::native only if
/// the library sums in one order for both; MPI and NCCL guarantee none).
///
/// Bytes per rank with N parameters including padding, 16-bit weights, g bytes per gradient and AdamW: 2 N +
/// g N + 12 N / P, versus 2 N + g N + 12 N for DDP. With f32 weights, which are their own masters: 4 N + 4 N
/// + 8 N / P. Ema adds 4 N / P. No tensor of N f32 masters, moments or averages ever exists.
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
/// Elementwise optimizers (SGD, Adam, AdamW) accept any shards. Muon needs BucketOptions::whole_parameters:
/// the rank that keeps a matrix updates it, and N / P is an average. Source: Rajbhandari et al. 2020, "ZeRO",
/// arXiv:1910.02054, section 5.1.
class Zero1 final : public GradientSync {
 public:
  /// For an arena made with sharded() options. Throws as GradientSync does, and ArgumentError if the arena is
  /// sharded differently.
  Zero1(ParameterArena& arena, Communicator& comm, const SyncOptions& options = {});
  /// Waits for messages in flight, except during an exception.
  ~Zero1() override;

  /// Sends every rank's new weights to all, in the order in which the next forward pass reads them. Call it
  /// after the optimizer's step and after other writes to masters (averages swapped in, a loaded state),
  /// which must be preceded by settle(). Throws PeerLostError.
  void gather_weights() override;

  /// When to rely on a model's parameters being read only in calls of their modules.
  enum class Trust : std::uint8_t {
    now,
    after_a_step,  ///< once a forward pass has shown it; never if one has shown otherwise
  };
  /// From now on gather_weights() only starts the gather, and calls of modules wait for the buckets of their
  /// own parameters. So the first layers compute while the weights of the last ones are in flight. `model`
  /// must have all parameters of the arena, use them through calls of its modules, not of their forward(),
  /// and live until end_overlap(). A recorded op that reads weights without that wait is an ArgumentError.
  /// Every rank may decide this for itself; the bits are the same.
  void overlap_gather(nn::Module& model, Trust trust = Trust::now);
  /// gather_weights() waits again, and the hooks on the model's modules are removed.
  void end_overlap();

  /// Whether weights are complete: no step of the optimizer since gather_weights().
  bool gathered() const { return gathered_ == arena().updates(); }
  void settle() override;
  std::uint64_t weights_hash() override;
  /// Seconds that calls of modules have waited since the last call.
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
  Look look_ = Look::off;                  // passed: module calls wait; else gather_weights() does
  bool read_any_ = false;                  // while looking
  std::vector<char> called_;               // by parameter: its module was called since the last gather
  bool gathering_ = false;
  int waited_ = 0;  // gathers, in order
  double waited_s_ = 0;
  std::int64_t gathered_ = 0;  // ParameterArena::updates() that all ranks have
  int exceptions_ = 0;
};

}  // namespace athanor::dist
