#include "conv.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "fast.h"

namespace engine {
namespace {

// Calls f(place in the matrix of patches, place in the image) for every element whose pixel is in the image.
template <class F> void for_each_pixel(const Windows& w, F&& f) {
  std::int64_t at = 0;
  for (std::int64_t c = 0; c < w.channels; ++c)
    for (std::int64_t r = 0; r < w.kernel; ++r)
      for (std::int64_t s = 0; s < w.kernel; ++s)
        for (std::int64_t y = 0; y < w.out_height(); ++y)
          for (std::int64_t x = 0; x < w.out_width(); ++x, ++at) {
            const std::int64_t row = y * w.stride + r - w.padding, column = x * w.stride + s - w.padding;
            if (row >= 0 && row < w.height && column >= 0 && column < w.width)
              f(at, (c * w.height + row) * w.width + column);
          }
}

Windows windows_of(const Shape& x, const Shape& weight, std::int64_t stride, std::int64_t padding) {
  if (x.size() != 4 || weight.size() != 4 || x[1] != weight[1] || weight[2] != weight[3] || stride < 1 ||
      padding < 0 || std::min(x[2], x[3]) + 2 * padding < weight[2])
    throw std::invalid_argument(
        "conv2d: x must be [n, c, h, w] and weight [k, c, r, r], with r at most h and w with their padding");
  return {x[1], x[2], x[3], weight[2], stride, padding};
}

}  // namespace

void image_to_columns(const Windows& w, const float* image, float* columns) {
  std::fill_n(columns, w.rows() * w.columns(), 0.0f);
  for_each_pixel(w, [&](std::int64_t at, std::int64_t pixel) { columns[at] = image[pixel]; });
}

void columns_to_image(const Windows& w, const float* columns, float* image) {
  for_each_pixel(w, [&](std::int64_t at, std::int64_t pixel) { image[pixel] += columns[at]; });
}

Variable conv2d(const Variable& x, const Variable& weight, std::int64_t stride, std::int64_t padding) {
  const Tensor images = x.value().contiguous(), filters = weight.value().contiguous();
  const Windows w = windows_of(images.shape(), filters.shape(), stride, padding);
  const std::int64_t n = images.shape()[0], k = filters.shape()[0], rows = w.rows(), columns = w.columns();
  const std::int64_t pixels = w.channels * w.height * w.width;
  const Matrix matrix{filters.data(), k, rows, rows};

  Tensor y({n, k, w.out_height(), w.out_width()}), patches({rows, columns});
  for (std::int64_t i = 0; i < n; ++i) {
    image_to_columns(w, images.data() + i * pixels, patches.data());
    product(matrix, {patches.data(), rows, columns, columns}, y.data() + i * k * columns, columns);
  }
  return record(y, {x, weight}, [=](const Tensor& gradient) {
    const Tensor dy = gradient.contiguous();
    Tensor dx(images.shape()), dw(filters.shape());
    for (std::int64_t i = 0; i < n; ++i) {
      const Matrix of_image{dy.data() + i * k * columns, k, columns, columns};
      Tensor of_patches({rows, columns});
      image_to_columns(w, images.data() + i * pixels,
                       of_patches.data());  // again: kept, they would be the memory that we save
      product(of_image, Matrix{of_patches.data(), rows, columns, columns}.transposed(), dw.data(), rows);
      Tensor dpatches({rows, columns});
      product(matrix.transposed(), of_image, dpatches.data(), columns);
      columns_to_image(w, dpatches.data(), dx.data() + i * pixels);
    }
    return std::vector<Tensor>{dx, dw};
  });
}

}  // namespace engine
