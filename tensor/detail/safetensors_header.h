#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/safetensors.h"
#include "tensor/shape.h"

// The JSON header of a safetensors file, checked but for the bytes it speaks of. Private to tensor/.

namespace athanor::safetensors {

/// The format's own limit on the header.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
/// Bytes of the header's length, before the header.
inline constexpr std::size_t kLengthBytes = 8;

/// What the header says of one tensor.
struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0, end = 0;  ///< in bytes, from the end of the header
  std::size_t at = 0;                ///< where in the file the header says so
};

struct Header {
  std::vector<TensorInfo> tensors;  ///< in the header's order
  Metadata metadata;
  std::size_t bytes = 0;  ///< of length and header: where tensor bytes begin
};

/// "F32", "BF16", "BOOL", ...; and back.
std::string_view format_name_of(DType dtype);
std::optional<DType> dtype_of_format_name(std::string_view name);

/// Reads the header of a whole file and checks every rule of the format. Throws IoError naming `path`.
Header read_header(std::span<const std::byte> file, const std::string& path);

}  // namespace athanor::safetensors
