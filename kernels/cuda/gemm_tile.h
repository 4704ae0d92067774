#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/vec.h"
#include "simt/async_copy.h"
#include "tensor/dtype.h"

// How tiles of the factors come from global memory into the shared memory of a block: see gemm.h.

namespace athanor::cuda {

/// A block's part of the product, kM x kN of it, and how many sums each of its threads has.
template <int M, int N, int Sums> struct GemmTile {
  static constexpr int kM = M, kN = N, kSums = Sums;
  static constexpr int kThreads = M * N / Sums;
};

/// Where in a tile a thread's first packet starts, along its line and across; others follow every `step`
/// lines.
struct PacketPlace {
  int along, across, step;
};

/// What products of factors of T are summed in: of bytes i32, for u8 are multiplied by i8.
template <class T> using GemmSum = std::conditional_t<sizeof(T) == 1, std::int32_t, Accumulate<T>>;

/// Where an element of a factor is, if it is not a zero that is nowhere.
template <class T> struct FactorAddress {
  const T* address;
  bool inside;
};

/// What a view's elements outside of its tensor are: zeros, unless it says otherwise.
template <class View> __device__ __forceinline__ typename View::Element nothing_of(const View& view) {
  if constexpr (requires { view.nothing; }) {
    return view.nothing;
  } else {
    return {};
  }
}

/// n, which the compiler cannot know: what follows from it is computed where it is needed, each time, and not
/// kept in registers through a loop.
__device__ __forceinline__ int afresh(int n) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(n));
#endif
  return n;
}

/// The same packet, its elements side by side in registers: each of a half type would else have one of its
/// own.
template <class T> __device__ __forceinline__ Vec<std::uint32_t, 4> packed(const Vec<T, kVec<T>>& packet) {
  auto words = std::bit_cast<Vec<std::uint32_t, 4>>(packet);
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3]));
#endif
  return words;
}

/// Which packets of a factor's tile a thread moves: 16 bytes each, neighbours along the axis that is dense in
/// memory. A view says what the factor is:
///   Element; Origin, Along, Across: where a tile begins, and parts of an address relative to it;
///   deep(): whether packets lie along the depth (else along the rows);
///   whole: whether a packet that starts inside can be read by one access;
///   origin(base, first_along, first_across); along(origin, i), across(origin, i);
///   at(origin, along, across): the element's address, and whether it is one: it is zero where not, or
///   `nothing`, if there is such a member. So is what lies beyond the rows and depths of the factor, where
///   the other has zeros.
template <class View, int kExtent, class Product> struct TilePackets {
  using T = typename View::Element;
  static constexpr int kDepth = Product::kDepth, kThreads = Product::kThreads;
  static constexpr int kWidth = kVec<T>;
  static constexpr int kCount = kExtent * kDepth / kWidth / kThreads;
  static_assert(kCount * kWidth * kThreads == kExtent * kDepth);

  PacketPlace place;
  typename View::Origin origin;
  int end_along, end_across;  ///< of the factor, counted from where the tile begins

  /// Of the tile that starts at (first_row, first_depth).
  __device__ __forceinline__ TilePackets(const View& view, const T* base, std::int64_t first_row,
                                         std::int64_t first_depth, std::int64_t rows, std::int64_t depths)
      : place(place_of(view.deep())),
        origin(view.deep() ? view.origin(base, first_depth, first_row)
                           : view.origin(base, first_row, first_depth)) {
    const int rows_left = left(rows - first_row), depths_left = left(depths - first_depth);
    end_along = view.deep() ? depths_left : rows_left, end_across = view.deep() ? rows_left : depths_left;
  }

  /// f(i, line, address, inside) for each packet of a view that is whole. Addresses are computed whether they
  /// are needed or not, so that an access is one predicated instruction.
  template <class F> __device__ __forceinline__ void for_each(const View& view, const F& f) const {
    const auto inner = view.along(origin, place.along);
    const bool starts_inside = place.along < end_along;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int line = place.across + i * place.step;
      const auto from = view.at(origin, inner, view.across(origin, line));
      f(i, line, from.address, starts_inside && line < end_across && from.inside);
    }
  }

  __device__ __forceinline__ static PacketPlace place_of(bool deep) {
    constexpr int kDeep = kDepth / kWidth, kFlat = kExtent / kWidth;  // packets of a line
    const int thread = afresh(static_cast<int>(threadIdx.x));
    return {(deep ? thread % kDeep : thread % kFlat) * kWidth, deep ? thread / kDeep : thread / kFlat,
            deep ? kThreads / kDeep : kThreads / kFlat};
  }

 private:
  __device__ __forceinline__ static int left(std::int64_t n) {
    return n > kExtent + kDepth ? kExtent + kDepth : static_cast<int>(n);
  }
};

/// Whether start_tile_copy() brings what a view says: it fills with zeros.
template <class View> bool can_be_copied(const View& view) {
  if constexpr (requires { view.nothing; }) return view.whole && view.nothing == 0;
  return view.whole;
}

/// What one thread carries from a factor in global memory to its tile, by way of registers.
template <class View, int kExtent, class Product> class TileCopy {
 public:
  using Packets = TilePackets<View, kExtent, Product>;
  using T = typename View::Element;

  /// Reads the tile that starts at (first_row, first_depth); nothing_of() beyond the factor's rows and
  /// depths.
  __device__ __forceinline__ void fetch(const View& view, const T* base, std::int64_t first_row,
                                        std::int64_t first_depth, std::int64_t rows, std::int64_t depths) {
    const Packets tile(view, base, first_row, first_depth, rows, depths);
    if (view.whole) {
      tile.for_each(view, [&](int i, int, const T* address, bool inside) {
        packets_[i] = nothing(view);
        if (inside) packets_[i] = load<4>(reinterpret_cast<const std::uint32_t*>(address));
      });
    } else {
      // A chunk at a time, which goes behind those before it: registers have no index.
#pragma unroll 1
      for (int first = 0; first < kPackets; first += kChunk) {
        Vec<T, kWidth> elements[kChunk];
        typename View::Across lines[kChunk];
#pragma unroll
        for (int i = 0; i < kChunk; ++i)
          lines[i] = view.across(tile.origin, tile.place.across + (first + i) * tile.place.step);
#pragma unroll
        for (int v = 0; v < kWidth; ++v) {
          const auto inner = view.along(tile.origin, tile.place.along + v);
          const bool inside = tile.place.along + v < tile.end_along;
#pragma unroll
          for (int i = 0; i < kChunk; ++i) {
            const auto from = view.at(tile.origin, inner, lines[i]);
            elements[i][v] = nothing_of(view);
            if (inside && tile.place.across + (first + i) * tile.place.step < tile.end_across && from.inside)
              elements[i][v] = *from.address;
          }
        }
#pragma unroll
        for (int i = 0; i < kPackets - kChunk; ++i) packets_[i] = packets_[i + kChunk];
#pragma unroll
        for (int i = 0; i < kChunk; ++i) packets_[kPackets - kChunk + i] = packed(elements[i]);
      }
    }
  }

  /// Writes what was read to the tile.
  __device__ __forceinline__ void store(const View& view, typename Product::Stored* tile) const {
    Vec<T, kWidth> packets[kPackets];
#pragma unroll
    for (int i = 0; i < kPackets; ++i) packets[i] = std::bit_cast<Vec<T, kWidth>>(packets_[i]);
    Product::template put<kExtent>(tile, view.deep(), Packets::place_of(view.deep()), packets);
  }

 private:
  static constexpr int kWidth = Packets::kWidth, kPackets = Packets::kCount;
  static constexpr int kChunk = kPackets * kWidth > 32 ? 32 / kWidth : kPackets;  // read element by element
  static_assert(kPackets % kChunk == 0);

  /// A packet of nothing_of().
  __device__ __forceinline__ static Vec<std::uint32_t, 4> nothing(const View& view) {
    if constexpr (requires { view.nothing; }) {
      static_assert(sizeof(T) == 1);
      const std::uint32_t word = nothing_of(view) * 0x01010101u;
      return {{word, word, word, word}};
    } else {
      return {};
    }
  }

  Vec<std::uint32_t, 4> packets_[kPackets] = {};
};

/// The same by cp.async, which needs no registers: the copies that this thread starts of the tile that begins
/// at (first_row, first_depth) of a view that can_be_copied(). What lies beyond becomes zero.
template <int kExtent, class Product, class View, class T>
__device__ __forceinline__ void start_tile_copy(const View& view, const T* base, std::int64_t first_row,
                                                std::int64_t first_depth, std::int64_t rows,
                                                std::int64_t depths, T* tile) {
  const TilePackets<View, kExtent, Product> packets(view, base, first_row, first_depth, rows, depths);
  packets.for_each(view, [&](int, int line, const T* address, bool inside) {
    simt::cp_async<16>(Product::template place<kExtent>(tile, view.deep(), line, packets.place.along),
                       address, inside ? 16 : 0);
  });
}

}  // namespace athanor::cuda
