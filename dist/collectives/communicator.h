#pragma once

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

/// How values are brought together; the headers of that name explain each.
enum class Algorithm : std::uint8_t {
  ring,          ///< the fewest bytes, P - 1 steps each way
  hierarchical,  ///< rings within nodes, then between them
  rank_order,    ///< everyone to everyone; sums of halves are exact to one rounding
  native,     ///< what the library below does: MPI_Iallreduce, ncclAllReduce, ...; bits and steps are its own
  automatic,  ///< between GPUs of several nodes native, else rank_order
};

/// "ring", "hierarchical", "rank_order", "native", "auto"
const char* name_of(Algorithm algorithm);

struct CommunicatorOptions {
  Algorithm algorithm = Algorithm::rank_order;
  /// Ranks per node, for hierarchical and automatic; neighbouring ranks are on one node.
  int node_size = 1;
  std::int64_t segment_bytes = 1 << 20;  ///< of rings
  /// How long a collective may stand still before its ranks are given up.
  std::chrono::milliseconds timeout{300'000};
  /// Before each collective, ranks compare which one they are about to start: where they differ, all throw
  /// ArgumentError, instead of a wrong sum or a wait without end. Slow. ATHANOR_DIST_DEBUG sets it.
  bool compare_calls = false;
};

/// The piece of `count` elements that is `rank`'s own, all of them about the same size.
Range piece_of(const CommunicatorOptions& options, std::int64_t count, int world_size, int rank);
/// The place of a rank's piece in the buffer among those of all: its number; with hierarchical, ranks of the
/// same place on their nodes follow each other.
int piece_index(const CommunicatorOptions& options, int world_size, int rank);

/// Bytes for what arrives while `buffer`, cut into `pieces` by rank, is reduced: with rank_order every rank's
/// share of the largest piece, with rings some segments. None with native, where sums are gradients.
std::int64_t scratch_bytes(const CommunicatorOptions& options, const Tensor& buffer,
                           std::span<const Range> pieces);

/// The collectives of a job: all its ranks, one algorithm. Every rank makes the same calls in the same order.
/// Of all that use the transport one may be under way at a time, for they share memory: run() throws
/// ArgumentError while a backward pass has buckets under way. After a PeerLostError nothing can be run.
class Communicator {
 public:
  /// Throws ArgumentError on an option out of range, and on Algorithm::native where the transport has none.
  explicit Communicator(Transport& transport, const CommunicatorOptions& options = {});
  ~Communicator();

  int rank() const { return transport_.rank(); }
  int world_size() const { return transport_.world_size(); }
  Transport& transport() const { return transport_; }
  Session& session() const { return transport_.session(); }
  /// As given, with the algorithm that automatic stands for.
  const CommunicatorOptions& options() const { return options_; }

  /// piece_of() this job.
  Range piece(std::int64_t count, int rank) const { return piece_of(options_, count, world_size(), rank); }

  /// Takes scratch_bytes() for the largest of several reductions before they are made; else each that needs
  /// more takes memory of its own.
  void reserve(std::int64_t bytes) { (void)scratch(bytes); }

  // Each is for one dense flat tensor on the transport's device, which it keeps; start() and push, or run().
  // `pieces`, by rank, tile the tensor in the order of piece_index(), and some may be empty; none given:
  // piece(). What the library below has not (native) is done by rank_order.

  /// buffer[piece] = the buffers of all ranks combined; the rest holds nothing of use afterwards.
  std::unique_ptr<Collective> reduce_scatter(const Tensor& buffer,
                                             kernels::Combine how = kernels::Combine::sum,
                                             std::vector<Range> pieces = {}) {
    return ready(make(Phase::reduce_scatter, buffer, how, std::move(pieces)));
  }
  /// Every rank's buffer[its piece] to all, in place.
  std::unique_ptr<Collective> all_gather(const Tensor& buffer, std::vector<Range> pieces = {}) {
    return ready(make(Phase::all_gather, buffer, {}, std::move(pieces)));
  }
  /// Both: every rank has the same bits then.
  std::unique_ptr<Collective> all_reduce(const Tensor& buffer, kernels::Combine how = kernels::Combine::sum,
                                         std::vector<Range> pieces = {});
  /// What rank `root` has, to all, in P - 2 + n / segment steps: n elements received and sent once by
  /// everyone but the two ends.
  std::unique_ptr<Collective> broadcast(const Tensor& buffer, int root);
  /// Few values: buffer[r * n / P ...) of each rank r to all, in one step: by rank_order, whatever the
  /// algorithm, but native over NCCL, which keeps memory for every pair of ranks that exchange messages.
  std::unique_ptr<Collective> all_gather_small(const Tensor& buffer);
  std::unique_ptr<Collective> barrier();
  /// One of the caller's own, as it is run where the transport's messages are.
  std::unique_ptr<Collective> ready(std::unique_ptr<Collective> collective);

  /// Puts it on record and starts it, for one who pushes it afterwards (dist/collectives/wait.h).
  /// `launch_us`: when it might have started, by FlightRecord::now_us(); 0: now. Throws as run() where ranks
  /// are compared.
  void start(Collective& collective, std::int64_t bucket = -1, std::int64_t launch_us = 0);
  /// From start to end. Throws PeerLostError; ArgumentError where the transport is held.
  void run(Collective& collective, std::int64_t bucket = -1);

 private:
  Group world() const { return {0, 1, world_size()}; }
  /// As part of another: on a device, the host is not told when it is done.
  std::unique_ptr<Collective> make(Phase phase, const Tensor& buffer, kernels::Combine how,
                                   std::vector<Range> pieces);
  /// Null where it is not for the library below.
  std::unique_ptr<Collective> native(const NativeCall& call) const;
  Tensor scratch(std::int64_t bytes);
  std::vector<Range> checked(const char* op, const Tensor& buffer, std::vector<Range> pieces) const;
  void compare(const Call& call, std::int64_t seq, Tag tag);

  Transport& transport_;
  CommunicatorOptions options_;
  Tensor scratch_;
  std::unique_ptr<Exchange> calls_;  // what each rank is about to start, where that is compared
};

}  // namespace athanor::dist
