#pragma once

#include <cstdint>

#include "kernels/detail/conv_size.h"

// The transforms of Winograd's algorithm for images and filters, before and after its products.
// conv_winograd.cpp and conv_winograd_gradient.cpp have the products and the passes made of them. Tensors are
// f32 or a half type T; intermediate values are f32.

namespace athanor::cpu::winograd {

inline constexpr std::int64_t kLanes = 16;
inline constexpr int kIn = 6, kOut = 4, kTaps = 3;  ///< of a tile, along H and along W
inline constexpr std::int64_t kPoints = kIn * kIn;
inline constexpr std::int64_t kWidth = 2 * kLanes;  ///< columns of a panel

constexpr std::int64_t quotient_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}
constexpr std::int64_t round_up(std::int64_t value, std::int64_t to) {
  return quotient_up(value, to) * to;
}

/// How wide the panels of a matrix are: 16 columns at most would leave half of a panel of 32 empty.
constexpr std::int64_t panel_width(std::int64_t columns) {
  return columns <= kLanes ? kLanes : kWidth;
}

/// A dense tensor [n, h, w, c].
struct Images {
  std::int64_t n, h, w, c;
};

/// The tiles of 4 x 4 pixels that cover images, in order; the last of a row or column may extend beyond the
/// image.
struct Tiles {
  explicit Tiles(const Images& of)
      : rows(quotient_up(of.h, kOut)), columns(quotient_up(of.w, kOut)), count(of.n * rows * columns) {}

  struct Place {
    std::int64_t image, top, left;
  };
  Place at(std::int64_t tile) const {
    return {tile / (rows * columns), tile / columns % rows * kOut, tile % columns * kOut};
  }

  std::int64_t rows, columns, count;
};

/// A matrix for each of the 36 points, in panels of `width` columns. Points are spaced an extra cache line
/// apart: at a multiple of 4 KB all would map to one set of the L1 cache, and a transform would take four
/// times as long.
struct Points {
  float* data;
  std::int64_t rows, width;

  std::int64_t step() const { return rows * width + kLanes; }
  float* at(std::int64_t panel, std::int64_t point) const {
    return data + (panel * kPoints + point) * step();
  }
  Points panel(std::int64_t index) const { return {at(index, 0), rows, width}; }

  static std::int64_t floats(std::int64_t rows, std::int64_t width, std::int64_t panels = 1) {
    return panels * kPoints * Points{nullptr, rows, width}.step();
  }
};

/// Filters w [K, 3, 3, C] as factors [depth, columns]. Forward sums over C; backward-data over K, with
/// filters rotated by 180 degrees.
struct Filters {
  std::int64_t depth, columns, channels;
  bool backward;

  std::int64_t panels() const { return quotient_up(columns, kWidth); }
  std::int64_t width() const { return panel_width(columns); }
};

/// Sums of a dense y [N, P, Q, channels] for each channel of every four tiles: the mean of the first tile,
/// then the sums of value - mean and of its square over all four. Four tiles are never shared by threads.
struct TileSums {
  static constexpr std::int64_t kTiles = 4;
  float* data;
  std::int64_t channels;

  float* of(std::int64_t tile) const { return data + tile / kTiles * 3 * channels; }
};

/// Final operations on sums before they are stored.
template <class T> struct Finish {
  const float* bias;                     ///< or null
  const T* residual;                     ///< or null
  bool relu;                             ///< NaN stays NaN
  TileSums channel_sums = {nullptr, 0};  ///< of what is stored, as it is rounded; or none
};

/// The transforms, for tensors of T.
template <class T> struct Transforms {
  /// The padded inputs `x` of output tiles [first, first + count) at the points: row first_row + i of v is
  /// tile first + i.
  void (*inputs_to_points)(const Images& z, const T* x, const Tiles& tiles, std::int64_t pad_h,
                           std::int64_t pad_w, std::int64_t first, std::int64_t count, const Points& v,
                           std::int64_t first_row);
  /// The tiles of dy, which act as the filters of backward-weights.
  void (*gradients_to_points)(const Images& z, const T* dy, const Tiles& tiles, std::int64_t first,
                              std::int64_t count, const Points& v, std::int64_t first_row);
  /// One panel of filters, `u`.
  void (*filters_to_points)(const Filters& filters, const T* w, std::int64_t panel, const Points& u);
  /// Writes y for such tiles, the channels of one panel, from products m.
  void (*write_outputs)(const Images& z, const Tiles& tiles, std::int64_t first, std::int64_t count,
                        std::int64_t panel, const Points& m, const Finish<T>& finish, T* y);
  /// Writes rows [first, first + count) of dw [K, 3, 3, channels], the channels of one panel.
  void (*write_gradient)(std::int64_t channels, std::int64_t first, std::int64_t count, std::int64_t panel,
                         const Points& m, bool accumulate, T* dw);
};

/// Those of this CPU, whose bits do not depend on it. Only if has_avx2().
template <class T> const Transforms<T>& transforms();

// By instruction set: winograd_avx2.cpp and winograd_avx512.cpp.
namespace avx2 {
template <class T> const Transforms<T>& transforms();
}
namespace avx512 {
template <class T> const Transforms<T>& transforms();
}

}  // namespace athanor::cpu::winograd
