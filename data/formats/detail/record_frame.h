#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "data/formats/crc32c.h"
#include "data/formats/detail/bytes.h"

// TFRecord framing: length (u64), a CRC of those 8 bytes, the data, a CRC of the data; little-endian.
// TensorBoard's event files use the same framing.
// Source: tensorflow/core/lib/io/record_writer.h.

namespace athanor::detail {

inline constexpr std::int64_t kRecordHead = 12, kRecordTail = 4;

/// CRCs are masked, because a CRC of data that contains CRCs is weak.
inline std::uint32_t masked_crc(std::span<const std::byte> bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/// Calls write(bytes) for each part of a record.
template <class Write> void frame_record(std::span<const std::byte> data, const Write& write) {
  const auto length = stored_le(static_cast<std::uint64_t>(data.size()));
  write(std::span<const std::byte>(length));
  write(std::span<const std::byte>(stored_le(masked_crc(length))));
  write(data);
  write(std::span<const std::byte>(stored_le(masked_crc(data))));
}

/// The data of the record at the beginning of `bytes`; nullopt if it is incomplete, or a CRC is wrong.
inline std::optional<std::span<const std::byte>> framed_record(std::span<const std::byte> bytes) {
  constexpr std::size_t kHead = kRecordHead, kTail = kRecordTail;
  if (bytes.size() < kHead + kTail || masked_crc(bytes.first(8)) != load_le<std::uint32_t>(bytes.subspan(8)))
    return std::nullopt;
  const auto length = load_le<std::uint64_t>(bytes);
  if (length > bytes.size() - kHead - kTail) return std::nullopt;
  const std::span<const std::byte> data = bytes.subspan(kHead, length);
  if (masked_crc(data) != load_le<std::uint32_t>(bytes.subspan(kHead + length))) return std::nullopt;
  return data;
}

}  // namespace athanor::detail
