#pragma once

#include <vector>

#include "simt/emulator/asynchronous.h"
#include "simt/tensor_map.h"

namespace simt {

/// What an emulated map holds; null for what make_tensor_map() has not made.
const TensorLayout* layout_of(const TensorMap& map);

unsigned tile_bytes(const TensorLayout& layout);

/// The tile that begins at an element, to shared memory, as stretches that are dense on both sides; there
/// they are swizzled. What is outside of the tensor comes from null.
std::vector<async::Piece> tile_pieces(const TensorLayout& layout, const int* at, char* shared);

}  // namespace simt
