#include "data/synthetic.h"

#include <cmath>

#include "tensor/base/error.h"
#include "tensor/philox.h"

namespace athanor {

std::unique_ptr<InMemoryDataset> synthetic(const ImageSpec& spec, std::int64_t size, std::uint64_t seed,
                                           double noise) {
  ATH_CHECK(size >= 0 && spec.classes > 0 && noise >= 0 && noise <= 1,
            "synthetic: size must be at least 0, classes positive and noise in [0, 1], but got {}, {} and {}",
            size, spec.classes, noise);
  // Stream 0 holds the patterns, stream 1 the noise; a byte is the top of a word.
  const RandomKey pattern{seed, 0}, grain{seed, 1};
  const auto bytes = static_cast<std::uint64_t>(spec.bytes());
  const auto weight = static_cast<std::uint32_t>(std::lround(noise * 256));
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
  pixels.reserve(static_cast<std::size_t>(size) * bytes);
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t label = i % spec.classes;
    labels.push_back(label);
    for (std::uint64_t p = 0; p < bytes; ++p) {
      const std::uint32_t clean = philox_word(pattern, static_cast<std::uint64_t>(label) * bytes + p) >> 24;
      const std::uint32_t dirt = philox_word(grain, static_cast<std::uint64_t>(i) * bytes + p) >> 24;
      pixels.push_back(static_cast<std::uint8_t>((clean * (256 - weight) + dirt * weight) / 256));
    }
  }
  return std::make_unique<InMemoryDataset>(spec, std::move(pixels), std::move(labels));
}

}  // namespace athanor
