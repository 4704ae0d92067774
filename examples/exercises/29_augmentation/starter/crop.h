#pragma once

#include <cstdint>
#include <vector>

#include "words.h"

using Image = std::vector<std::vector<int>>;  // rows of pixels

struct Crop {
  int down = 0, right = 0;
  bool mirrored = false;
};

inline Crop draw(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample, int pad) {
  static std::uint64_t drawn = 0;
  (void)sample;
  const std::uint64_t random = word(seed, epoch, 0, drawn++);
  const int shift = static_cast<int>(random % static_cast<std::uint64_t>(2 * pad)) - pad;
  return {shift, shift, random % 2 == 0};
}

inline Image transformed(const Image& image, const Crop& crop) {
  (void)crop;
  return image;
}

inline void augment(Image& image, Image& mask, std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample,
                    int pad) {
  (void)mask;
  image = transformed(image, draw(seed, epoch, sample, pad));
}
