#pragma once

#include <vector>

#include "simt/asynchronous.h"
#include "simt/tensor_map.h"

namespace simt {

/// What an emulated map holds; null for what make_tensor_map() has not made.
const TensorLayout* layout_of(const TensorMap& map);

unsigned tile_bytes(const TensorLayout& layout);

/// The tile that begins at an element, as stretches of memory that are dense on both sides; the shared side
/// swizzled. To shared memory, what is outside of the tensor comes from null; from there, it is left out.
std::vector<async::Piece> tile_pieces(const TensorLayout& layout, const int* at, char* shared,
                                      bool to_shared);

}  // namespace simt
