#pragma once

#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "dist/collectives/communicator.h"
#include "tensor/base/counters.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace athanor::dist {

/// Exchanges a few bytes between the hosts of all ranks, wherever the network's memory is: a table with a row
/// for each rank. Created once, run often.
class Exchange {
 public:
  /// Rows of `row_bytes`, a multiple of 8. Initially zero.
  Exchange(Communicator& comm, std::int64_t row_bytes);

  /// The table on the transport's device, flat u8; kernels may write this rank's row.
  const Tensor& table() const { return table_; }
  /// A rank's row on the host; for other ranks, as of the last run(). 8-byte aligned.
  std::byte* row(int rank) const { return host_.raw_data() + rank * row_bytes_; }
  std::int64_t row_bytes() const { return row_bytes_; }

  /// Copies this rank's bytes from `begin` on from row() on the host. On the CPU, they are the same memory.
  void upload(std::int64_t begin = 0);
  /// Sends every row to all ranks and their hosts: a counted wait. Throws as Communicator::run().
  void run(const Site& site = Site::current());
  /// run() in two parts: the collective, for callers that run it, and the copy to the host.
  Collective& gather() { return *gather_; }
  void download(const Site& site = Site::current());

 private:
  Communicator& comm_;
  std::int64_t row_bytes_;
  Tensor table_, host_;
  Event here_;
  std::unique_ptr<Collective> gather_;
};

/// Gathers a value of every rank, by rank, on all.
template <class T>
std::vector<T> gather_values(Communicator& comm, const T& mine, const Site& site = Site::current()) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);
  Exchange rows(comm, sizeof mine);
  std::memcpy(rows.row(comm.rank()), &mine, sizeof mine);
  rows.upload();
  rows.run(site);
  std::vector<T> all(static_cast<std::size_t>(comm.world_size()));
  std::memcpy(all.data(), rows.row(0), all.size() * sizeof mine);
  return all;
}

}  // namespace athanor::dist
