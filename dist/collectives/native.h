#pragma once

#include <cstdint>
#include <vector>

#include "dist/collectives/collective.h"
#include "dist/collectives/group.h"
#include "kernels/accumulate.h"
#include "tensor/tensor.h"

namespace athanor::dist {

/// What a library below may do by itself, as dist/collectives/communicator.h describes it, with all ranks: on
/// a dense flat tensor where the transport's messages are.
struct NativeCall {
  enum class What : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast } what;
  Tensor buffer;
  kernels::Combine how = kernels::Combine::sum;
  std::vector<Range> pieces = {};  ///< by rank, and in that order tiling the buffer; not of broadcast
  int root = 0;                    ///< of broadcast

  const char* name() const {
    switch (what) {
      case What::all_reduce: return "native all_reduce";
      case What::reduce_scatter: return "native reduce_scatter";
      case What::all_gather: return "native all_gather";
      case What::broadcast: return "native broadcast";
    }
    return "native";
  }
};

}  // namespace athanor::dist
