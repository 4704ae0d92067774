#pragma once

#include <cstdint>
#include <vector>

#include "dist/collectives/collective.h"
#include "dist/collectives/group.h"
#include "kernels/accumulate.h"
#include "tensor/tensor.h"

namespace athanor::dist {

/// A collective that the library may do natively, with all ranks: as in dist/collectives/communicator.h, on a
/// dense flat tensor in the transport's memory.
struct NativeCall {
  enum class What : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast } what;
  Tensor buffer;
  kernels::Combine how = kernels::Combine::sum;
  std::vector<Range> pieces = {};  ///< by rank, tiling the buffer in that order; not for broadcast
  int root = 0;                    ///< for broadcast

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
