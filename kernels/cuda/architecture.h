#pragma once

// The architecture that nvcc compiles device code for, once for each of a release. The host's code, and the
// emulator, see Hopper's.

namespace athanor::cuda {

#if defined(__CUDA_ARCH__)
inline constexpr int kArchitecture = __CUDA_ARCH__ / 10;  ///< 90 for sm_90
#else
inline constexpr int kArchitecture = 90;
#endif

/// There, ptxas 13.0 needs more registers for the same code than on the architectures before.
inline constexpr bool kIsBlackwell = kArchitecture >= 100;

}  // namespace athanor::cuda
