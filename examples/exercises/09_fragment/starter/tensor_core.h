#pragma once

#include <functional>

#include "lab.h"
#include "simt/tensor_core.h"

// y = A B: A is [rows, cols], rows a multiple of 16 and cols of 8; B is [cols, 8], y [rows, 8].

namespace tensor_core_task {

/// Sums over d of a(i, d) b(d, j), where a and b say which elements of a 16 x 8 and an 8 x 8 tile are used.
struct Place {
  int row, column;
};
using Element = std::function<Place(int row, int column)>;

inline std::vector<double> product(lab::Size size, lab::Arrays x, const Element& a, const Element& b,
                                   const Element& c) {
  std::vector<double> y(lab::rows(size) * 8);
  for (int top = 0; top < size.rows; top += 16)
    for (int left = 0; left < size.cols; left += 8)
      for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 8; ++j)
          for (int d = 0; d < 8; ++d) {
            const Place from = a(i, d), by = b(d, j), to = c(i, j);
            y[static_cast<std::size_t>((top + to.row) * 8 + to.column)] +=
                double{x[0][static_cast<std::size_t>((top + from.row) * size.cols + left + from.column)]} *
                x[1][static_cast<std::size_t>((left + by.row) * 8 + by.column)];
          }
  return y;
}

}  // namespace tensor_core_task

lab::Task lab::task() {
  using tensor_core_task::Element, tensor_core_task::product;
  const Element same = [](int i, int j) { return tensor_core_task::Place{i, j}; };
  const Element crossed = [](int i, int d) {  // a[1] and a[2] exchanged
    return tensor_core_task::Place{d < 4 ? (i < 8 ? i : i - 8) : (i < 8 ? i + 8 : i),
                                   i < 8 ? d % 4 : d % 4 + 4};
  };
  const Element turned = [](int i, int j) { return tensor_core_task::Place{j, i}; };
  const Element apart = [](int i, int j) { return tensor_core_task::Place{i, j / 2 + j % 2 * 4}; };
  const auto as = [](const Element& a, const Element& b, const Element& c) {
    return [=](Size size, Arrays x) { return product(size, x, a, b, c); };
  };
  return {
      .formula = "y = A B on tensor cores, a warp for 16 rows",
      .sizes = {{16, 8}, {32, 64}, {48, 256}},
      .large = {65536, 1024},
      .inputs = {all, [](Size size) { return cols(size) * 8; }},
      .result = [](Size size) { return rows(size) * 8; },
      .reference = as(same, same, same),
      .tolerance = 1e-2,
      .mistakes =
          {{"a[1] and a[2] are exchanged: the second register is 8 rows below the first, not 4 columns to "
            "the right",
            as(crossed, same, same)},
           {"B is read as if it were transposed: b0 is B (t, g)", as(same, turned, same)},
           {"the sums of a lane are two adjacent columns, 2 t and 2 t + 1, not t and t + 4",
            as(same, same, apart)},
           {"a[1] and a[2] are exchanged, and the sums of a lane are two adjacent columns, not t and t + 4",
            as(crossed, same, apart)}},
  };
}
