#pragma once

#include <cstddef>
#include <vector>

#include "data/image/image.h"

namespace athanor {

inline constexpr std::int64_t kMaxJpegSide = 65500;

/// The JPEG file of an image of 1 or 3 channels; colours at half the resolution in each direction (4:2:0),
/// tables made for the image. `out` is emptied first. Throws ArgumentError on other channels, sides over
/// kMaxJpegSide or a quality outside [1, 100].
void encode_jpeg(const ImageView& image, int quality, std::vector<std::byte>& out);

}  // namespace athanor
