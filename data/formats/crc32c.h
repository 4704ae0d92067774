#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace athanor {

/// The CRC of TFRecord, iSCSI and our packed files: polynomial 0x1edc6f41, reflected, started from and ended
/// with all ones. `seed` is the CRC of what came before: crc32c(ab) == crc32c(b, crc32c(a)).
/// Finds every error of up to 32 bits in a row. Source: Castagnoli et al. 1993; RFC 3720, appendix B.4.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0);

namespace detail {

/// True where this CPU has an instruction for it: SSE4.2, or CRC32 of ARMv8.
bool has_crc32c_instruction();
/// The two ways behind crc32c(); the first only where the CPU has the instruction.
std::uint32_t crc32c_by_instruction(std::span<const std::byte> bytes, std::uint32_t seed);
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t seed);

}  // namespace detail
}  // namespace athanor
