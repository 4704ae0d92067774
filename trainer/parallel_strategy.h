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
#include "dist/step_agreement.h"
#include "nn/module.h"
#include "optim/arena.h"
#include "tensor/state_dict.h"
#include "trainer/config.h"
#include "trainer/phase_times.h"

namespace athanor {

/// The interface between training and dist/: everything that depends on the number of ranks. One rank, DDP
/// and ZeRO-1 implement these calls; with one rank most do nothing. Every rank makes the same calls in the
/// same order. Throws PeerLostError if a rank is lost.
class ParallelStrategy {
 public:
  /// For a rank of a job; null: a single rank. Throws ArgumentError if config and job contradict each other.
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
  /// Compares layouts and copies rank 0's values, until detach(), which must precede the arena's destruction.
  /// Adds communication time to `times`. A run has an arena per optimizer, in the same order on all ranks.
  virtual void attach(ParameterArena& arena, PhaseTimes& times) = 0;
  virtual void detach() = 0;
  /// For ops in which ranks wait for each other: each rank then runs every pass, even without samples.
  virtual dist::PassNetwork pass_network() { return {}; }

  // A step.

  /// Keep the result during a backward pass into this arena. The last pass of an update sends gradients.
  virtual std::optional<dist::GradientSync::NoSync> begin_pass(ParameterArena& arena, bool last) = 0;
  /// The votes of ranks before the step. One rank gets the outcome at once as the result; several get it from
  /// the next reduce().
  virtual dist::StopVote cast(const dist::StopVote& vote) = 0;
  /// Reduces gradients over all ranks, measures their norm and decides on the update. If the outcome stops(),
  /// no rank may make the step. The first call of a step carries the votes.
  virtual dist::StopVote reduce(ParameterArena& arena, StepBuffer& step, const GradientLimits& limits) = 0;
  /// The state of the steps that all ranks know.
  virtual const StepState& known(const StepBuffer& step) const { return step.known(); }
  /// If all ranks `may` and this returns true, weights are sent during the next forward pass. Valid until
  /// detach(), which must precede the model's destruction.
  virtual bool overlap_weights(nn::Module&, bool) { return false; }
  /// Starts to send this rank's updated weights to the others, who need them for the next pass. The network
  /// must be free.
  virtual void publish_weights() {}
  /// Publishes weights and returns when all ranks have all weights and nothing is in flight.
  virtual void complete_weights() {}
  /// Seconds that forward passes have waited for weights since the last call.
  virtual double take_waited_s() { return 0; }
  /// Names of the parameters without a gradient in the last step, on that rank; empty if none had one,
  /// because the rank had no samples.
  virtual std::vector<std::string> unused(int) const { return {}; }

  /// The arena's hash; of several arenas, the hash of their hashes.
  virtual std::uint64_t weights_hash() = 0;
  /// Throws Error, on all ranks, if `hash` differs between ranks.
  virtual void check_weights(std::uint64_t) {}
  /// Broadcasts rank 0's running statistics, before an evaluation.
  virtual void broadcast_buffers() {}

  // Exchanges between ranks.

  /// As cast(), but returns the outcome at once.
  virtual dist::StopVote agree(const dist::StopVote& vote) = 0;
  /// From now on, each rank ends independently.
  virtual void end_agreements() {}
  /// The rows of all ranks, concatenated; all have one length.
  virtual std::vector<std::byte> all_gather(std::span<const std::byte> row) = 0;
  /// Rank 0 calls `write` with its result of `make`, and can read each tensor as a whole, wherever its parts
  /// are. The other ranks wait as long as it takes.
  using WriteState = std::function<void(const StateDict&, const dist::ReadTensor&)>;
  virtual void write_state(const std::function<StateDict()>& make, const WriteState& write) = 0;

  /// The same for values of 8 bytes, or multiples.
  template <class T> std::vector<T> gather(std::span<const T> mine) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);
    const std::vector<std::byte> rows = all_gather(std::as_bytes(mine));
    std::vector<T> all(rows.size() / sizeof(T));
    std::memcpy(all.data(), rows.data(), rows.size());
    return all;
  }
  std::vector<std::string> gather(const std::string& mine);
  /// Sums over all ranks, in rank order: the same bits on each.
  void add_up(std::span<double> values);
  /// Rank 0 calls `work`. All ranks throw what it throws: one error, one line, and no rank waits.
  void run_on_rank0(const std::function<void()>& work);
  std::string broadcast_from_rank0(const std::string& text);
  /// Throws ArgumentError, on all ranks alike, naming each setting (a text) that differs from rank 0, is
  /// missing on one of them, or is additional.
  void check_same(const StateDict& settings);

 protected:
  ParallelStrategy() = default;
};

}  // namespace athanor
