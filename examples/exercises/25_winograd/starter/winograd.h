#pragma once

#include "image.h"

// Along one axis: the values of four inputs, or of three taps, at the points 0, 1, -1 and infinity, and the
// two outputs of four products.
inline std::array<double, 4> input_row(const std::array<double, 4>& d) {
  return {d[0] - d[2], d[1] + d[2], d[1] - d[2], d[1] - d[3]};
}
inline std::array<double, 4> filter_row(const std::array<double, 3>& g) {
  return {g[0], (g[0] + g[1] + g[2]) / 2, (g[0] - g[1] + g[2]) / 2, g[2]};
}
inline std::array<double, 2> output_row(const std::array<double, 4>& m) {
  return {m[0] + m[1] + m[2], m[1] - m[2] - m[3]};
}

// The same along both axes: each row, then each column of the result.
template <std::size_t kOut, std::size_t kIn, class Row> Tile<kOut> both_axes(const Tile<kIn>& x, Row row) {
  Tile<kOut> result{};
  std::array<std::array<double, kOut>, kIn> rows{};
  for (std::size_t i = 0; i < kIn; ++i) rows[i] = row(x[i]);
  for (std::size_t j = 0; j < kOut; ++j) {
    std::array<double, kIn> column{};
    for (std::size_t i = 0; i < kIn; ++i) column[i] = rows[i][j];
    const auto values = row(column);
    for (std::size_t i = 0; i < kOut; ++i) result[i][j] = values[i];
  }
  return result;
}

inline Tile<4> filter_at_points(const Tile<3>& g) {
  return both_axes<4>(g, filter_row);
}
inline Tile<4> input_at_points(const Tile<4>& d) {
  return both_axes<4>(d, input_row);
}
inline Tile<2> outputs_of(const Tile<4>& m) {
  return both_axes<2>(m, output_row);
}

inline Image convolve(const Image& x, const Tile<3>& g) {
  Image y(x.height - 2, x.width - 2);
  const Tile<4> filter = filter_at_points(g);
  for (int top = 0; top + 4 <= x.height; top += 4) {
    for (int left = 0; left + 4 <= x.width; left += 4) {
      Tile<4> d{};
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
          d[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] = x.at(top + i, left + j);
      Tile<4> m = input_at_points(d);
      for (std::size_t i = 0; i < 4; ++i)
        for (std::size_t j = 0; j < 4; ++j) m[i][j] = product(m[i][j], filter[i][j]);
      const Tile<2> tile = outputs_of(m);
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
          y.at(top + i, left + j) = tile[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
    }
  }
  return y;
}
