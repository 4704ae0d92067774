#pragma once  // Explained in docs/tensors.md.

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define ATH_HD __host__ __device__
#else
#define ATH_HD
#endif

namespace athanor {

// The 16-bit types are for storage; arithmetic uses float. Both conversions avoid branches on data, so loops
// over them vectorise, and round to nearest even as the hardware does. A GPU uses its own instructions, whose
// results differ only in the bits of a NaN.

/// IEEE binary16: 1 sign, 5 exponent, 10 fraction bits.
struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  ATH_HD explicit Half(float value) : bits(encode(value)) {}
  ATH_HD explicit operator float() const { return decode(bits); }

  ATH_HD static std::uint16_t encode(float value) {
#if defined(__CUDA_ARCH__)
    std::uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    constexpr std::uint32_t kInfinity = 255u << 23;
    constexpr std::uint32_t kOverflow = (127u + 16u) << 23;                // 65536: rounds to infinity
    constexpr std::uint32_t kSubnormal = (127u - 14u) << 23;               // 2^-14: smallest normal half
    constexpr std::uint32_t kAlign = (127u - 15u + 23u - 10u + 1u) << 23;  // adding it aligns subnormals
    const std::uint32_t raw = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = raw & 0x80000000u;
    const std::uint32_t magnitude = raw ^ sign;

    const std::uint32_t special = magnitude > kInfinity ? 0x7e00u : 0x7c00u;
    const std::uint32_t tiny =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAlign)) - kAlign;
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    const std::uint32_t normal = (magnitude + ((15u - 127u) << 23) + 0xfffu + odd) >> 13;

    const std::uint32_t finite = magnitude < kSubnormal ? tiny : normal;
    return static_cast<std::uint16_t>((magnitude >= kOverflow ? special : finite) | (sign >> 16));
#endif
  }

  ATH_HD static float decode(std::uint16_t half) {
#if defined(__CUDA_ARCH__)
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
#else
    constexpr std::uint32_t kExponent = 0x7c00u << 13;
    constexpr std::uint32_t kMagic = 113u << 23;
    const std::uint32_t shifted = (half & 0x7fffu) << 13;
    const std::uint32_t exponent = shifted & kExponent;
    const std::uint32_t rebased = shifted + ((127u - 15u) << 23);

    const std::uint32_t special = rebased + ((128u - 16u) << 23);
    const std::uint32_t tiny = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rebased + (1u << 23)) -
                                                            std::bit_cast<float>(kMagic));
    const std::uint32_t finite = exponent == 0 ? tiny : rebased;
    const std::uint32_t sign = (half & 0x8000u) << 16;
    return std::bit_cast<float>((exponent == kExponent ? special : finite) | sign);
#endif
  }
};

/// bfloat16: the upper half of a float.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  ATH_HD explicit BFloat16(float value) : bits(encode(value)) {}
  ATH_HD explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

  ATH_HD static std::uint16_t encode(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    std::uint16_t half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    const std::uint32_t raw = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = raw + 0x7fffu + ((raw >> 16) & 1u);
    const bool nan = (raw & 0x7fffffffu) > (255u << 23);
    return static_cast<std::uint16_t>((nan ? raw | 0x400000u : rounded) >> 16);
#endif
  }
};

}  // namespace athanor
