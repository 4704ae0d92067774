#pragma once

#include <cstdint>
#include <string_view>

#include "random.h"

// Two runs of 100 steps that your engine and Athanor both make: equal first weights, equal batches, equal
// optimizers, all in float.

namespace engine::capstone {

constexpr std::int64_t kSteps = 100, kBatch = 32, kImages = 1437;

/// The image of the training part that stands at place i of the batch of `step`.
constexpr std::int64_t image_of(std::int64_t step, std::int64_t i) {
  return (step * kBatch + i) * 389 % kImages;
}

/// Element i, in row-major order of our shapes, of the first values of the weights called `name`: normal with
/// deviation `deviation`.
inline float first_value(std::string_view name, float deviation, std::int64_t i) {
  std::uint64_t seed = 0;
  for (const char letter : name) seed = seed * 131 + static_cast<unsigned char>(letter);
  return deviation * random_normal(seed, static_cast<std::uint64_t>(i));
}

/// For the CNN SGD with momentum 0.9; for the transformer AdamW with the defaults of optim.h.
constexpr float kCnnRate = 0.02f, kTransformerRate = 0.001f;

/// Athanor's losses of some steps, which count from 1: tests/course/capstone.cpp prints this table.
struct Losses {
  std::int64_t step;
  double cnn, transformer;
};
// clang-format off
constexpr Losses kAthanor[] = {
    {1, 2.931299, 2.863052},
    {25, 0.700641, 1.872444},
    {50, 0.372322, 1.255648},
    {75, 0.168945, 0.663882},
    {100, 0.106232, 0.512289},
};
// clang-format on

}  // namespace engine::capstone
