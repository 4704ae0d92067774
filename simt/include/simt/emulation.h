#pragma once

#include <cuda_runtime.h>

// What a program may ask about the device that it is built for. Included by host code too, for any compiler.

namespace simt {

/// Whether <cuda_runtime.h> is the emulator's.
#if defined(SIMT_CUDA_RUNTIME)
inline constexpr bool kEmulated = true;
#else
inline constexpr bool kEmulated = false;
#endif

/// Whether this build checks accesses against the bounds of what cudaMalloc returned. Then an allocator must
/// ask cudaMalloc for each array: in a larger block, an index out of bounds meets a neighbour and is not
/// seen.
#if defined(SIMT_CUDA_RUNTIME) && (defined(SIMT_RACE) || defined(__SANITIZE_ADDRESS__))
inline constexpr bool kChecksAllocations = true;
#else
inline constexpr bool kChecksAllocations = false;
#endif

}  // namespace simt
