#include "simt/emulator/tensor_tiles.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "simt/emulator/cuda/runtime_api.h"
#include "simt/emulator/runtime.h"

// Tensor maps, and which bytes a tile of one is.

namespace simt {
namespace {

constexpr std::uint64_t kMagic = 0x70616d726f736e74;  // the last word of a map

static_assert(sizeof(TensorLayout) <= 15 * 8);

int bytes_of(TensorType type) {
  return type == TensorType::u8 ? 1 : type == TensorType::f32 ? 4 : 2;
}

/// Why the driver would refuse it; empty where it would not.
std::string wrong_with(const TensorLayout& layout) {
  if (layout.rank < 1 || layout.rank > TensorLayout::kMaxAxes)
    return fmt::format("a tensor has 1 to 5 axes, not {}", layout.rank);
  if (!layout.data || reinterpret_cast<std::uintptr_t>(layout.data) % 16 != 0)
    return fmt::format("data must be a multiple of 16, but is {}", layout.data);
  for (int i = 0; i < layout.rank; ++i) {
    if (layout.size[i] == 0 || layout.size[i] > std::uint64_t{1} << 32)
      return fmt::format("axis {} must have 1 to 2^32 elements, but has {}", i, layout.size[i]);
    if (layout.tile[i] == 0 || layout.tile[i] > 256)
      return fmt::format("a tile must have 1 to 256 elements along axis {}, but has {}", i, layout.tile[i]);
    if (i > 0 && (layout.stride[i] % 16 != 0 || layout.stride[i] >= std::uint64_t{1} << 40))
      return fmt::format("the stride of axis {} must be a multiple of 16 bytes below 2^40, but is {}", i,
                         layout.stride[i]);
  }
  const std::uint64_t row = std::uint64_t{layout.tile[0]} * static_cast<unsigned>(bytes_of(layout.type));
  if (row % 16 != 0) return fmt::format("a row of a tile must be a multiple of 16 bytes, but is {}", row);
  if (layout.swizzle != Swizzle::none && row > static_cast<unsigned>(bytes_of(layout.swizzle)))
    return fmt::format("a row of a tile must not exceed the swizzle's {} bytes, but is {}",
                       bytes_of(layout.swizzle), row);
  return {};
}

}  // namespace

cudaError_t make_tensor_map(TensorMap* map, const TensorLayout& layout) {
  return api_call("make_tensor_map", [&](Runtime&) {
    if (const std::string wrong = wrong_with(layout); !wrong.empty())
      throw Failure{cudaErrorInvalidValue, wrong};
    std::memset(map, 0, sizeof(*map));
    std::memcpy(map->words, &layout, sizeof(layout));
    map->words[15] = kMagic;
    return cudaSuccess;
  });
}

const TensorLayout* layout_of(const TensorMap& map) {
  return map.words[15] == kMagic ? reinterpret_cast<const TensorLayout*>(map.words) : nullptr;
}

unsigned tile_bytes(const TensorLayout& layout) {
  auto bytes = static_cast<unsigned>(bytes_of(layout.type));
  for (int i = 0; i < layout.rank; ++i) bytes *= layout.tile[i];
  return bytes;
}

std::vector<async::Piece> tile_pieces(const TensorLayout& layout, const int* at, char* shared) {
  const auto element = static_cast<unsigned>(bytes_of(layout.type));
  const unsigned row_bytes = layout.tile[0] * element, rows = tile_bytes(layout) / row_bytes;
  // Of a row, the bytes that are inside, if the row is.
  const std::int64_t size = static_cast<std::int64_t>(layout.size[0]);
  const auto inside = [&](std::int64_t x) { return std::clamp<std::int64_t>(x, 0, layout.tile[0]); };
  const auto first = static_cast<unsigned>(inside(-std::int64_t{at[0]})) * element,
             end = static_cast<unsigned>(inside(size - at[0])) * element;
  std::vector<async::Piece> pieces;
  for (unsigned row = 0; row < rows; ++row) {
    std::int64_t offset = std::int64_t{at[0]} * element;
    bool row_inside = true;
    for (unsigned axis = 1, rest = row; axis < static_cast<unsigned>(layout.rank); ++axis) {
      const std::int64_t i = std::int64_t{at[axis]} + rest % layout.tile[axis];
      rest /= layout.tile[axis];
      row_inside = row_inside && i >= 0 && i < static_cast<std::int64_t>(layout.size[axis]);
      offset += i * static_cast<std::int64_t>(layout.stride[axis]);
    }
    for (unsigned begin = 0; begin < row_bytes; begin += 16) {
      const auto plain = reinterpret_cast<std::uintptr_t>(shared) + row * row_bytes + begin;
      char* const place = reinterpret_cast<char*>(swizzled(layout.swizzle, plain));
      // At most three parts: before the tensor, in it, and behind it.
      const unsigned from = row_inside ? std::clamp(first, begin, begin + 16) : begin + 16,
                     to = row_inside ? std::clamp(end, from, begin + 16) : begin + 16;
      const auto add = [&](unsigned a, unsigned b, bool of_tensor) {
        if (a >= b) return;
        const char* const global = of_tensor ? static_cast<char*>(layout.data) + (offset + a) : nullptr;
        pieces.push_back({place + (a - begin), global, b - a});
      };
      add(begin, from, false);
      add(from, to, true);
      add(to, begin + 16, false);
    }
  }
  return pieces;
}

}  // namespace simt
