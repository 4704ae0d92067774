#pragma once

#include <memory>
#include <span>

#include "dist/collectives/communicator.h"
#include "tensor/counters.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace athanor::dist {

/// A few bytes of every rank to the hosts of all, wherever the network has its memory: a table with a row for
/// each rank. Made once, run often.
class Exchange {
 public:
  /// Rows of `row_bytes`, a multiple of 8. All zero.
  Exchange(Communicator& comm, std::int64_t row_bytes);

  /// The table on the transport's device, flat u8: what kernels have written to this rank's row travels.
  const Tensor& table() const { return table_; }
  /// A rank's row on the host: of others, as of the last run(). 8-byte aligned.
  std::byte* row(int rank) const { return host_.raw_data() + rank * row_bytes_; }
  std::int64_t row_bytes() const { return row_bytes_; }

  /// This rank's bytes from `begin` on come from row() on the host. On the CPU, they are the same memory.
  void upload(std::int64_t begin = 0);
  /// Every row to all ranks, and to their hosts: a counted wait. Throws as Communicator::run().
  void run(const Site& site = Site::current());
  /// run() in two parts: the collective, for one who runs it himself, and the way to the host.
  Collective& gather() { return *gather_; }
  void download(const Site& site = Site::current());

 private:
  Communicator& comm_;
  std::int64_t row_bytes_;
  Tensor table_, host_;
  Event here_;
  std::unique_ptr<Collective> gather_;
};

/// Whether no two ranks give the same bytes: all call it with as many, a multiple of 8.
bool all_differ(Communicator& comm, std::span<const std::byte> mine);

}  // namespace athanor::dist
