#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace athanor {

/// The CRC of TFRecord, iSCSI and our packed files: polynomial 0x1edc6f41, reflected, initial value and final
/// xor all ones. `seed` is the CRC of the preceding bytes: crc32c(ab) == crc32c(b, crc32c(a)). Detects every
/// burst error of up to 32 bits. Source: Castagnoli et al. 1993; RFC 3720, appendix B.4.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0);

}  // namespace athanor
