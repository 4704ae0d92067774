#pragma once

#include <cstdint>
#include <string_view>

namespace athanor {

/// The implementation to run: on the CPU, a name in kernels/cpu/conv_list.cpp. `reference` handles every
/// case: Eigen on the CPU, our own kernel on CUDA. `vendor` is oneDNN on the CPU and cuDNN or cuBLASLt on
/// CUDA; it throws BackendError in a build without it. `direct` and `winograd` (AVX2) are our own code, CPU
/// only. `automatic` uses the fastest applicable one.
enum class ConvImpl : std::uint8_t { automatic, reference, vendor, direct, winograd };
constexpr std::string_view name_of(ConvImpl impl) {
  switch (impl) {
    case ConvImpl::automatic: return "automatic";
    case ConvImpl::reference: return "reference";
    case ConvImpl::vendor: return "vendor";
    case ConvImpl::direct: return "direct";
    case ConvImpl::winograd: return "winograd";
  }
  return "?";
}
/// `mma` and `wgmma` are our own tensor-core kernels for f16 and bf16, CUDA only: by mma.sync, and by
/// Hopper's wgmma. `reference` picks among our own.
enum class MatmulImpl : std::uint8_t { automatic, reference, vendor, mma, wgmma };
constexpr std::string_view name_of(MatmulImpl impl) {
  switch (impl) {
    case MatmulImpl::automatic: return "automatic";
    case MatmulImpl::reference: return "reference";
    case MatmulImpl::vendor: return "vendor";
    case MatmulImpl::mma: return "mma";
    case MatmulImpl::wgmma: return "wgmma";
  }
  return "?";
}

}  // namespace athanor
