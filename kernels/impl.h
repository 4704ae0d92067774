#pragma once

#include <cstdint>

namespace athanor {

/// Which implementation runs. `reference` is plain loops (CPU) or our own kernel (CUDA); `vendor` is oneDNN
/// on the CPU and cuDNN or cuBLASLt on CUDA, and throws BackendError in a build without it; `eigen` exists on
/// the CPU alone, and so does `direct`, our own loops for AVX-512; `automatic` takes the fastest that can do
/// the job.
enum class ConvImpl : std::uint8_t { automatic, reference, eigen, vendor, direct };
enum class MatmulImpl : std::uint8_t { automatic, reference, eigen, vendor };

}  // namespace athanor
