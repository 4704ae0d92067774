// Pictures of a network's output. In the archive of formats, because of libpng: programs that do not use this
// need not link it.

#include "trainer/samples.h"

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "autograd/elementwise.h"
#include "autograd/grad_mode.h"
#include "autograd/shape.h"
#include "data/image/png.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/io/atomic_file.h"
#include "trainer/task.h"

namespace athanor {
namespace {

constexpr std::int64_t kGap = 2;  // pixels around each image

void check_images(std::string_view name, const Tensor& images, const ImageGrid& grid) {
  ATH_CHECK(is_name(name, "_-"), "images: a name must be of letters, digits, '_' and '-', but is '{}'", name);
  ATH_CHECK(images.defined() && images.rank() == 4 && is_floating(images.dtype()) &&
                (images.dim(3) == 1 || images.dim(3) == 3) && images.dim(1) > 0 && images.dim(2) > 0,
            "images: '{}' must be floating [N, H, W, 1 or 3], but is {}", name,
            images.defined() ? fmt::format("{} {}", images.dtype(), images.shape()) : "none");
  ATH_CHECK(grid.columns >= 1 && grid.at_most >= 1 && grid.low < grid.high,
            "images: '{}' must have a column, an image and low < high, but got {}, {} and [{}, {}]", name,
            grid.columns, grid.at_most, grid.low, grid.high);
}

}  // namespace

GridPixels draw_grid(const Tensor& images, const ImageGrid& grid) {
  check_images("grid", images, grid);
  const std::int64_t count = std::min(images.dim(0), grid.at_most), height = images.dim(1),
                     row_bytes = images.dim(2) * images.dim(3), channels = images.dim(3);
  ATH_CHECK(count > 0, "images: there must be one, but the shape is {}", images.shape());
  const NoGrad no_grad;
  const Tensor host =
      contiguous(cast(narrow(images.detach(), 0, 0, count), DType::f32)).to(kCpu);  // on the device before
  const std::int64_t columns = std::min(grid.columns, count), rows = (count + columns - 1) / columns;
  GridPixels out{{}, rows * (height + kGap) + kGap, columns * (images.dim(2) + kGap) + kGap, channels};
  out.pixels.resize(static_cast<std::size_t>(out.height * out.width * channels));
  const float* from = host.data<float>();
  for (std::int64_t i = 0; i < count * height; ++i) {
    const std::int64_t image = i / height;
    const std::int64_t top = image / columns * (height + kGap) + kGap + i % height;
    const std::int64_t left = image % columns * (images.dim(2) + kGap) + kGap;
    std::uint8_t* to = out.pixels.data() + (top * out.width + left) * channels;
    for (std::int64_t k = 0; k < row_bytes; ++k) {
      const double share = (from[i * row_bytes + k] - grid.low) / (grid.high - grid.low);
      to[k] =
          share > 0 ? static_cast<std::uint8_t>(std::lround(255 * std::min(share, 1.0))) : 0;  // NaN: black
    }
  }
  return out;
}

void SampleFolder::write(std::string_view name, const Tensor& images, const ImageGrid& grid) {
  if (images.dim(0) == 0 || std::find(written_.begin(), written_.end(), name) != written_.end()) return;
  written_.emplace_back(name);
  const GridPixels drawn = draw_grid(images, grid);
  const auto path = folder_ / fmt::format("epoch_{:04}_{}.png", epoch_, name);
  std::vector<std::byte> bytes;
  encode_png({drawn.pixels.data(), drawn.height, drawn.width, drawn.channels, drawn.width * drawn.channels},
             bytes);
  if (on_picture_) on_picture_({epoch_, name, bytes, drawn.height, drawn.width, drawn.channels});
  try {
    std::error_code ignored;  // writing the file reports any problem with the folder
    std::filesystem::create_directories(folder_, ignored);
    write_atomically(path, bytes);
  } catch (const IoError& error) {
    if (!std::exchange(failed_, true))
      on_note_(fmt::format("warning: pictures were not saved: {}", error.what()));
  }
}

void Step::images(std::string_view name, const Tensor& images, const ImageGrid& grid) {
  ATH_CHECK(!place_.training, "images: must be called in a validation step, but '{}' is in a training step",
            name);
  check_images(name, images, grid);
  if (samples_) samples_->write(name, images, grid);
}

}  // namespace athanor
