#pragma once

#include <chrono>
#include <memory>

#include "dist/collectives/native.h"
#include "dist/transports/transport.h"

namespace athanor::dist {

struct MpiOptions {
  /// Longer messages travel in several: MPI counts in int, and cuts off what is above without a word.
  std::size_t chunk_bytes = std::size_t{1} << 30;
  /// One who waits does so inside MPI, without a deadline, and test() knows what a wait_for_any() has seen:
  /// for a simulated network (SimGrid), whose clock only waiting moves.
  bool wait_inside = false;
  /// How long MPI may wait for other ranks where it starts, duplicates a network or ends; then the process
  /// says so and ends with exit code 74, for nothing else helps. Not with `wait_inside`.
  std::chrono::milliseconds timeout{300'000};
};

/// Ranks as processes started by mpirun or Slurm, over MPI's point-to-point messages of bytes; in the target
/// athanor_mpi, where the build found MPI. A process that was started otherwise is a world of one. Starts MPI
/// where the program has not, and ends it again. MPI never waits here: a rank that is stopped is noticed by
/// our own deadlines, one that has died by mpirun, which ends the others after a second.
///
/// MPI_Finalize waits for all ranks, without end where one is lost. So where this dies while an exception is
/// on its way, or after messages had to be let go of, it says why on stderr, leaves the others a second to do
/// so, and ends all ranks with exit code 74. One who wants the exception printed catches it while this lives.
class MpiTransport final : public Transport {
 public:
  /// Throws BackendError where MPI cannot be started. Where the program has started it for one thread only,
  /// that thread alone may call, and Overlap::thread is refused.
  explicit MpiTransport(const MpiOptions& options = {});
  ~MpiTransport() override;

  /// Ranks on this machine, and this one's place among them.
  int local_size() const;
  int local_rank() const;

  Request isend(int to, Tag tag, std::span<const std::byte> bytes) override;
  Request irecv(int from, Tag tag, std::span<std::byte> bytes) override;
  bool test(Request& request) override;
  void cancel(Request& request) noexcept override;
  bool wait_for_any() override;
  bool threads_may_call() const override;
  /// Waits until all ranks have called. MPI itself is entered by one thread at a time.
  std::unique_ptr<Transport> duplicate() override;
  /// MPI_Iallreduce, MPI_Ireduce_scatter, MPI_Iallgatherv and MPI_Ibcast. Sums of f16 and bf16 are rounded at
  /// every step.
  bool has_native() const override { return true; }
  std::unique_ptr<Collective> native(const NativeCall& call) override;

  /// Ends all ranks at once, with that exit code, for one that has found another lost. Does not return.
  [[noreturn]] void abort(int exit_code);

 private:
  struct Impl;
  explicit MpiTransport(std::unique_ptr<Impl> impl);
  Request post(int peer, Tag tag, std::span<std::byte> bytes, bool receives);

  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor::dist
