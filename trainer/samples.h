#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/io/atomic_file.h"
#include "tensor/tensor.h"

namespace athanor {

/// The layout of images in Step::images().
struct ImageGrid {
  double low = 0, high = 1;   ///< the values for black and white; values beyond are clamped
  std::int64_t columns = 8;   ///< images in a row
  std::int64_t at_most = 64;  ///< maximum number of images; later ones are omitted
};

/// The pixels of a grid, with a border of two black pixels around each image.
struct GridPixels {
  std::vector<std::uint8_t> pixels;
  std::int64_t height = 0, width = 0, channels = 0;
};

/// images [N, H, W, 1 or 3], floating, N > 0. Throws ArgumentError on others, and on a grid without columns,
/// images or range. A counted wait.
GridPixels draw_grid(const Tensor& images, const ImageGrid& grid);

/// A picture from a validation: a grid of images.
struct Picture {
  std::int64_t epoch = 0;  ///< 1 is the first
  std::string_view name;
  std::span<const std::byte> png;  ///< the bytes of a file
  std::int64_t height = 0, width = 0, channels = 0;
};

/// The folder for pictures of a run's validations: on rank 0, DIR/epoch_0003_NAME.png.
class SampleFolder {
 public:
  /// `on_note` is called once if writing a picture fails, which ends no run; `on_picture` for each.
  SampleFolder(std::filesystem::path folder, std::function<void(const std::string&)> on_note,
               std::function<void(const Picture&)> on_picture = {})
      : folder_(std::move(folder)), on_note_(std::move(on_note)), on_picture_(std::move(on_picture)) {}

  /// Begins a validation; 1 is the first epoch. The first call removes what a killed run left half-written.
  void begin(std::int64_t epoch) {
    if (epoch_ == 0) AtomicFile::remove_unfinished(folder_);
    epoch_ = epoch;
    written_.clear();
  }
  /// Writes the first picture of a name in a validation, atomically; ignores later ones.
  void write(std::string_view name, const Tensor& images, const ImageGrid& grid);

 private:
  std::filesystem::path folder_;
  std::function<void(const std::string&)> on_note_;
  std::function<void(const Picture&)> on_picture_;
  std::int64_t epoch_ = 0;
  std::vector<std::string> written_;
  bool failed_ = false;
};

}  // namespace athanor
