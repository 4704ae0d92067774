#pragma once  // Explained in docs/inference_mode.md.

#include <cstdint>

#include "data/dataset.h"
#include "nn/module.h"

namespace athanor {

/// What a network's pass reads and writes, in bytes.
struct PassBytes {
  std::int64_t weights = 0;
  std::int64_t activations = 0;  ///< of one image: the results of all ops
  std::int64_t largest = 0;      ///< of one image: the largest such result
};

/// Computes one image of zeros of `dtype`, on the CPU. If the network refuses it, activations are those
/// before that.
PassBytes measure_pass(nn::Module& network, const ImageSpec& images, DType dtype = DType::f32);

/// How many images of a batch a CPU should compute at a time: few enough that a layer's activations are still
/// in the cores' caches when the next layer reads them, and enough that reading the weights again for each
/// part costs little. `batch` where parts gain nothing. At most two different sizes occur: the last part may
/// be smaller.
std::int64_t images_at_a_time(const PassBytes& pass, std::int64_t batch, std::int64_t threads);

}  // namespace athanor
