#pragma once

#include <chrono>
#include <memory>

#include "dist/collectives/native.h"
#include "dist/transports/transport.h"

namespace athanor::dist {

struct MpiOptions {
  /// Longer messages are split: MPI counts in int and silently truncates larger counts.
  std::size_t chunk_bytes = std::size_t{1} << 30;
  /// Waits happen inside MPI, without a deadline, and test() uses the results of wait_for_any(). For a
  /// simulated network (SimGrid), whose clock only advances in waits.
  bool wait_inside = false;
  /// Maximum wait for other ranks when MPI starts, duplicates a network or ends. After that the process
  /// reports it and ends with exit code 74, the only remedy. Not with `wait_inside`.
  std::chrono::milliseconds timeout{300'000};
};

/// Ranks as processes started by mpirun or Slurm, over MPI's point-to-point messages of bytes; in the target
/// athanor_mpi, if the build found MPI. Any other process is a world of one. Initialises MPI unless the
/// program has, and then also finalises it. MPI never waits here: our own deadlines detect a stopped rank;
/// mpirun detects a dead one and ends the others after a second.
///
/// MPI_Finalize waits for all ranks, endlessly if one is lost. So if this is destroyed during an exception,
/// or after messages were cancelled, it prints the reason on stderr, leaves other ranks a second to do the
/// same, and ends all ranks with exit code 74. To print the exception, catch it while this object lives.
class MpiTransport final : public Transport {
 public:
  /// Throws BackendError if MPI cannot be started. If the program has initialised MPI for one thread only,
  /// just that thread may call, and Overlap::thread is refused.
  explicit MpiTransport(const MpiOptions& options = {});
  ~MpiTransport() override;

  /// Number of ranks on this machine, and this rank's index among them.
  int local_size() const;
  int local_rank() const;

  Request isend(int to, Tag tag, std::span<const std::byte> bytes) override;
  Request irecv(int from, Tag tag, std::span<std::byte> bytes) override;
  bool test(Request& request) override;
  void cancel(Request& request) noexcept override;
  bool wait_for_any() override;
  bool threads_may_call() const override;
  /// Waits until all ranks have called it. Only one thread at a time enters MPI.
  std::unique_ptr<Transport> duplicate() override;
  /// MPI_Iallreduce, MPI_Ireduce_scatter, MPI_Iallgatherv and MPI_Ibcast. Sums of f16 and bf16 are rounded at
  /// every step.
  bool has_native() const override { return true; }
  std::unique_ptr<Collective> native(const NativeCall& call) override;

  /// Ends all ranks at once with that exit code, when another rank is lost. Does not return.
  [[noreturn]] void abort(int exit_code);

 private:
  struct Impl;
  explicit MpiTransport(std::unique_ptr<Impl> impl);
  Request post(int peer, Tag tag, std::span<std::byte> bytes, bool receives);

  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor::dist
