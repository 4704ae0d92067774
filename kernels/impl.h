#pragma once

#include <cstdint>

namespace athanor {

/// Which implementation runs. `reference` does every case: by Eigen on the CPU, by our own kernel on CUDA.
/// `vendor` is oneDNN on the CPU and cuDNN or cuBLASLt on CUDA, and throws BackendError in a build without
/// it; `direct` and `winograd` are our own code for AVX-512, on the CPU alone. `automatic` takes the fastest
/// that can do the job.
enum class ConvImpl : std::uint8_t { automatic, reference, vendor, direct, winograd };
enum class MatmulImpl : std::uint8_t { automatic, reference, vendor };

}  // namespace athanor
