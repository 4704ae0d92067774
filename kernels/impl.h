#pragma once

#include <cstdint>
#include <string_view>

namespace athanor {

/// The implementation to run. `reference` handles every case: Eigen on the CPU, our own kernel on CUDA.
/// `vendor` is oneDNN on the CPU and cuDNN or cuBLASLt on CUDA; it throws BackendError in a build without it.
/// `direct` (AVX-512) and `winograd` (AVX2) are our own code, CPU only. `automatic` uses the fastest applicable one.
enum class ConvImpl : std::uint8_t { automatic, reference, vendor, direct, winograd };
constexpr std::string_view kConvImplNames[] = {"automatic", "reference", "vendor", "direct", "winograd"};
constexpr std::string_view name_of(ConvImpl impl) {
  return kConvImplNames[static_cast<int>(impl)];
}
enum class MatmulImpl : std::uint8_t { automatic, reference, vendor };

}  // namespace athanor
