#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/io/safetensors.h"
#include "tensor/shape.h"

// The JSON header of a safetensors file, fully checked except for the tensor bytes. Private to tensor/.

namespace athanor::safetensors {

/// The format's own limit on the header.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
/// Size of the header length field, in bytes.
inline constexpr std::size_t kLengthBytes = 8;

/// The header's entry of a tensor.
struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0, end = 0;  ///< in bytes, from the end of the header
  std::size_t at = 0;                ///< offset of the entry in the file
};

struct Header {
  std::vector<TensorInfo> tensors;  ///< in the header's order
  Metadata metadata;
  std::size_t bytes = 0;  ///< of length field and header: tensor bytes begin here
};

/// "F32", "BF16", "BOOL", ...; and back.
std::string_view format_name_of(DType dtype);
std::optional<DType> dtype_of_format_name(std::string_view name);

/// Parses the header of a whole file and checks every rule of the format. Throws IoError naming `path`.
Header read_header(std::span<const std::byte> file, const std::string& path);

}  // namespace athanor::safetensors
