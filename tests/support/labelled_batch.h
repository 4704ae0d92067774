#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "data/loader.h"

namespace athanor::test {

/// Three images as small_training.h's Perceptron takes them, of the classes 2, 0 and 2.
inline Batch labelled_batch() {
  Batch batch;
  batch.images = Tensor::empty({3, 4, 4, 1});
  for (std::int64_t i = 0; i < 48; ++i) batch.images.data<float>()[i] = static_cast<float>(std::sin(i));
  batch.labels = Tensor::from(std::vector<std::int64_t>{2, 0, 2}, {3});
  batch.samples = batch.labels;
  return batch;
}

}  // namespace athanor::test
