#pragma once  // Explained in docs/why_not_data_parallel.md.

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dist/collectives/collective.h"
#include "dist/collectives/group.h"
#include "dist/collectives/native.h"
#include "dist/transports/transport.h"
#include "kernels/accumulate.h"
#include "tensor/tensor.h"

namespace athanor::dist {

class Exchange;

/// How values are combined or exchanged; the headers of these names explain each.
enum class Algorithm : std::uint8_t {
  ring,          ///< the fewest bytes, P - 1 steps each way
  hierarchical,  ///< rings within nodes, then between them
  rank_order,    ///< all to all directly; sums of halves are exact to one rounding
  native,        ///< the library's own: MPI_Iallreduce, ncclAllReduce, ...; bits and steps are its choice
  automatic,     ///< native between GPUs of several nodes, else rank_order
};

/// "ring", "hierarchical", "rank_order", "native", "auto"
const char* name_of(Algorithm algorithm);

struct CommunicatorOptions {
  Algorithm algorithm = Algorithm::rank_order;
  /// Ranks per node, for hierarchical and automatic; ranks of a node are consecutive.
  int node_size = 1;
  std::int64_t segment_bytes = 1 << 20;  ///< of rings
  /// Time without progress after which a collective fails.
  std::chrono::milliseconds timeout{300'000};
  /// Before each collective, ranks compare which one they are about to start. If they differ, all throw
  /// ArgumentError, instead of a wrong sum or an endless wait. Slow. ATHANOR_DIST_DEBUG sets it.
  bool compare_calls = false;
};

/// The piece of `count` elements that `rank` owns; all have about the same size.
Range piece_of(const CommunicatorOptions& options, std::int64_t count, int world_size, int rank);
/// The position of a rank's piece in the buffer: its rank. With hierarchical, ranks with the same index on
/// their nodes are adjacent.
int piece_index(const CommunicatorOptions& options, int world_size, int rank);

/// Bytes for incoming data while `buffer`, cut into `pieces` by rank, is reduced. rank_order: every rank's
/// version of the largest piece; rings: some segments; native, for sums: none.
std::int64_t scratch_bytes(const CommunicatorOptions& options, const Tensor& buffer,
                           std::span<const Range> pieces);

/// The collectives of a job: all its ranks, one algorithm. Every rank makes the same calls in the same order.
/// Only one collective may use the transport at a time, as they share memory: run() throws ArgumentError
/// while buckets of a backward pass are in flight. After a PeerLostError none can run.
class Communicator {
 public:
  /// Throws ArgumentError on an option out of range, and on Algorithm::native if the transport lacks it.
  explicit Communicator(Transport& transport, const CommunicatorOptions& options = {});
  ~Communicator();

  int rank() const { return transport_.rank(); }
  int world_size() const { return transport_.world_size(); }
  Transport& transport() const { return transport_; }
  Session& session() const { return transport_.session(); }
  /// As given, with `automatic` resolved.
  const CommunicatorOptions& options() const { return options_; }

  /// piece_of() for this job.
  Range piece(std::int64_t count, int rank) const { return piece_of(options_, count, world_size(), rank); }

  /// Reserves scratch_bytes() for the largest of several reductions; otherwise each that needs more allocates
  /// its own.
  void reserve(std::int64_t bytes) { (void)scratch(bytes); }

  // Each is for one dense flat tensor on the transport's device, which it retains: start() and advance it, or
  // run(). `pieces`, by rank, tile the tensor in the order of piece_index(); some may be empty; default:
  // piece(). What the library lacks natively is done by rank_order.

  /// buffer[piece] = the combined buffers of all ranks; the rest of the buffer is undefined afterwards.
  std::unique_ptr<Collective> reduce_scatter(const Tensor& buffer,
                                             kernels::Combine how = kernels::Combine::sum,
                                             std::vector<Range> pieces = {}) {
    return ready(make(Phase::reduce_scatter, buffer, how, std::move(pieces)));
  }
  /// Sends every rank's buffer[its piece] to all, in place.
  std::unique_ptr<Collective> all_gather(const Tensor& buffer, std::vector<Range> pieces = {}) {
    return ready(make(Phase::all_gather, buffer, {}, std::move(pieces)));
  }
  /// Both phases: afterwards every rank has the same bits.
  std::unique_ptr<Collective> all_reduce(const Tensor& buffer, kernels::Combine how = kernels::Combine::sum,
                                         std::vector<Range> pieces = {});
  /// Sends rank `root`'s buffer to all, in P - 2 + n / segment steps: every rank except the two ends receives
  /// and sends n elements once.
  std::unique_ptr<Collective> broadcast(const Tensor& buffer, int root);
  /// For few values: sends buffer[r * n / P ...) of each rank r to all, in one step. Uses rank_order for any
  /// algorithm, but native over NCCL, which keeps memory for every pair of ranks that exchange messages.
  std::unique_ptr<Collective> all_gather_small(const Tensor& buffer);
  std::unique_ptr<Collective> barrier();
  /// Adapts a caller's own collective to the memory of the transport's messages.
  std::unique_ptr<Collective> ready(std::unique_ptr<Collective> collective);

  /// Records and starts a collective that the caller then advances (dist/collectives/wait.h). `launch_us`:
  /// the time from which it could have started, by FlightRecord::now_us(); 0: now. Returns its number in the
  /// record. Throws as run() if calls are compared.
  std::int64_t start(Collective& collective, std::int64_t bucket = -1, std::int64_t launch_us = 0);
  /// Runs to completion. Throws PeerLostError; ArgumentError if the transport is held.
  void run(Collective& collective, std::int64_t bucket = -1);

 private:
  Group world() const { return {0, 1, world_size()}; }
  /// For use inside another collective: on a device, completion is not reported to the host.
  std::unique_ptr<Collective> make(Phase phase, const Tensor& buffer, kernels::Combine how,
                                   std::vector<Range> pieces);
  /// Null if the library does not support it.
  std::unique_ptr<Collective> native(const NativeCall& call) const;
  Tensor scratch(std::int64_t bytes);
  std::vector<Range> checked(const char* op, const Tensor& buffer, std::vector<Range> pieces) const;
  void compare(const Call& call, std::int64_t seq, Tag tag);

  Transport& transport_;
  CommunicatorOptions options_;
  Tensor scratch_;
  std::unique_ptr<Exchange> calls_;  // the collective each rank is about to start, if compared
};

}  // namespace athanor::dist
