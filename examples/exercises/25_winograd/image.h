#pragma once

#include <array>
#include <cstddef>
#include <stdexcept>
#include <vector>

template <std::size_t kSize> using Tile = std::array<std::array<double, kSize>, kSize>;

struct Image {
  Image(int rows, int columns)
      : height(rows),
        width(columns),
        values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns)) {}

  double& at(int i, int j) {
    if (i < 0 || i >= height || j < 0 || j >= width) throw std::out_of_range("outside the image");
    return values[static_cast<std::size_t>(i * width + j)];
  }
  double at(int i, int j) const { return const_cast<Image&>(*this).at(i, j); }

  int height, width;
  std::vector<double> values;
};

inline int products = 0;
inline double product(double a, double b) {
  ++products;
  return a * b;
}
