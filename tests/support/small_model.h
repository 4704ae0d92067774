#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "nn/models/model.h"
#include "tensor/philox.h"
#include "tests/support/image_files.h"
#include "trainer/inference/model_file.h"

// A model as a run leaves it, and images for it, for what uses trained models.

namespace athanor::test {

inline constexpr ImageSpec kDigits{8, 8, 1, 10};

inline ModelInfo model_info(const std::string& model, const ImageSpec& images) {
  const auto channels = static_cast<std::size_t>(images.channels);
  ModelInfo info{.program = "train_photos", .model = model, .images = images};
  info.pixels = {std::vector<double>(channels, 0.4), std::vector<double>(channels, 0.3)};
  return info;
}

inline std::unique_ptr<nn::Module> small_network(const std::string& name, const ImageSpec& images,
                                                 std::uint64_t seed = 1) {
  return nn::make_model(name, {images.classes, images.channels, images.height}, seed);
}

/// A digits_cnn for these images.
inline void save_small_model(const std::filesystem::path& file, std::uint64_t seed = 1,
                             const ImageSpec& images = kDigits) {
  save_model(file, model_info("digits_cnn", images), small_network("digits_cnn", images, seed)->state_dict());
}

/// u8 noise.
inline Tensor noise_images(const Shape& shape, std::uint64_t seed = 5) {
  const Tensor images = Tensor::empty(shape, {DType::u8});
  for (std::int64_t i = 0; i < images.numel(); ++i)
    images.data<std::uint8_t>()[i] =
        static_cast<std::uint8_t>(philox_word({seed, 1}, static_cast<std::uint64_t>(i)) >> 24);
  return images;
}

/// The PNG file of a grey or RGB image.
inline std::string png_of(const Pixels& image) {
  std::vector<std::vector<std::uint8_t>> rows;
  const auto width = static_cast<std::ptrdiff_t>(image.width * image.channels);
  for (std::ptrdiff_t y = 0; y < image.height; ++y)
    rows.emplace_back(image.bytes.begin() + y * width, image.bytes.begin() + (y + 1) * width);
  const int kind = image.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB;
  return png_file(image.height, image.width, kind, 8, false, rows);
}

}  // namespace athanor::test
