#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "dist/gather_state.h"
#include "dist/gradient_sync.h"
#include "dist/pass_network.h"
#include "dist/stop_vote.h"
#include "nn/module.h"
#include "optim/arena.h"
#include "tensor/state_dict.h"
#include "trainer/config.h"
#include "trainer/phase_times.h"

namespace athanor {

/// The seam between training and dist/: all that knows how many ranks there are. One rank, DDP and ZeRO-1
/// each do these calls in their own way; with one rank most are nothing. Every rank makes the same calls in
/// the same order. Throws PeerLostError where a rank is gone.
class ParallelStrategy {
 public:
  /// For a rank of a job; null: there is one. Throws ArgumentError where config and job contradict each
  /// other.
  static std::unique_ptr<ParallelStrategy> make(dist::Transport* transport, const TrainerConfig& config);
  virtual ~ParallelStrategy() = default;
  ParallelStrategy(const ParallelStrategy&) = delete;
  ParallelStrategy& operator=(const ParallelStrategy&) = delete;

  virtual Strategy kind() const = 0;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  bool is_rank0() const { return rank() == 0; }
  /// "single", "ddp on 4 ranks (mpirun)", "single (--devices auto: no GPU in use)".
  std::string describe(const std::string& note) const;

  // The model.

  virtual ArenaOptions arena_options(const ArenaOptions& options) = 0;
  /// Compares layouts, and takes rank 0's values; until detach(), which comes before the arena goes. Seconds
  /// of communication go to `times`. A run has an arena for each optimizer, in the same order on all ranks.
  virtual void attach(ParameterArena& arena, PhaseTimes& times) = 0;
  virtual void detach() = 0;
  /// For what passes of all ranks wait for: each rank then runs every pass, with no samples, too.
  virtual dist::PassNetwork pass_network() { return {}; }

  // A step.

  /// To be kept while a backward pass into this arena runs. Gradients are sent during an update's last one.
  virtual std::optional<dist::GradientSync::NoSync> begin_pass(ParameterArena& arena, bool last) = 0;
  /// What ranks have voted for before the step. On one rank it is known at once: returned. Else it is known
  /// with the next reduce().
  virtual dist::StopVote cast(const dist::StopVote& vote) = 0;
  /// Gradients of all ranks, their norm, and what becomes of the update. Where the outcome stops(), the step
  /// is not to be made: nobody may update. The first of a step carries the votes.
  virtual dist::StopVote reduce(ParameterArena& arena, StepBuffer& step, const GradientLimits& limits) = 0;
  /// What all ranks know of the steps so far.
  virtual const StepState& known(const StepBuffer& step) const { return step.known(); }
  /// Where it returns true, weights travel while the next forward pass computes, if all ranks `may`; until
  /// detach(), before the model goes.
  virtual bool overlap_weights(nn::Module&, bool) { return false; }
  /// Begins to send what has become of weights here to the others, who need it for the next pass. The network
  /// must be free.
  virtual void publish_weights() {}
  /// Publishes them, and returns when all ranks have all weights, and nothing is under way.
  virtual void complete_weights() {}
  /// Seconds that forward passes have waited for weights since the last call.
  virtual double take_waited_s() { return 0; }
  /// Names of the parameters that no gradient reached in the last step, on that rank; none where none reached
  /// any, because it had no samples.
  virtual std::vector<std::string> unused(int) const { return {}; }

  /// That of the arena; of several, of their hashes.
  virtual std::uint64_t weights_hash() = 0;
  /// Throws Error, on all ranks, where `hash` is not the same everywhere although it should be.
  virtual void check_weights(std::uint64_t) {}
  /// Running statistics of rank 0 to all: before one evaluates.
  virtual void broadcast_buffers() {}

  // What ranks tell each other.

  /// As cast(), with the outcome at once.
  virtual dist::StopVote agree(const dist::StopVote& vote) = 0;
  /// From here on, each rank ends by itself.
  virtual void end_agreements() {}
  /// The rows of all ranks, one after the other; all of one length.
  virtual std::vector<std::byte> all_gather(std::span<const std::byte> row) = 0;
  /// Rank 0 calls `write` with what `make` gives there, of which it may read each tensor as a whole, wherever
  /// its parts are. The others wait for it, as long as it takes.
  using WriteState = std::function<void(const StateDict&, const dist::ReadTensor&)>;
  virtual void write_state(const std::function<StateDict()>& make, const WriteState& write) = 0;

  /// The same of values of 8 bytes, or a few times that.
  template <class T> std::vector<T> gather(std::span<const T> mine) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);
    const std::vector<std::byte> rows = all_gather(std::as_bytes(mine));
    std::vector<T> all(rows.size() / sizeof(T));
    std::memcpy(all.data(), rows.data(), rows.size());
    return all;
  }
  std::vector<std::string> gather(const std::string& mine);
  /// Sums over all ranks, in their order: the same bits everywhere.
  void add_up(std::span<double> values);
  /// Rank 0 calls `work`. What it throws there, all throw: one mistake, one line, and nobody waits.
  void run_on_rank0(const std::function<void()>& work);
  std::string broadcast_from_rank0(const std::string& text);
  /// Throws ArgumentError, on all ranks alike, naming each of the settings (texts) that a rank has otherwise
  /// than rank 0, or has and rank 0 has not, or the other way round.
  void check_same(const StateDict& settings);

 protected:
  ParallelStrategy() = default;
};

}  // namespace athanor
