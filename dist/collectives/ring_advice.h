#pragma once

#include <string>
#include <vector>

namespace athanor::dist {

/// How the GPUs of a job's ranks are linked, as far as a rank can see.
struct GpuLinks {
  static constexpr int kUnknown = -1;   ///< a GPU of another host, or one that is hidden from this process
  static constexpr int kNoPeer = 1000;  ///< messages go through the host's memory

  std::vector<int> host;    ///< by rank: a number for each host
  std::vector<int> device;  ///< by rank: as this process numbers GPUs; -1: not visible
  /// [from][to]: 0 for the fastest link, then CUDA's performance rank, or one of the above.
  std::vector<std::vector<int>> link;
};

/// One line if a ring over the ranks in their order is slower than need be: its slowest link is avoided by
/// another order of the GPUs, or it crosses between hosts, over one link at a time. Else empty; as it is with
/// fewer than three ranks. Orders of more than eight ranks are not tried.
std::string advise_on_ring(const GpuLinks& links);

}  // namespace athanor::dist
