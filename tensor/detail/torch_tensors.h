#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

// What is in a file that torch.save() wrote, checked but for the values. Private to tensor/.

namespace athanor::torch_file {

/// Bytes of the file that tensors view.
struct StoredBytes {
  std::uint64_t begin = 0, bytes = 0;
};

/// A tensor, whose last element lies within its storage.
struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;
  std::int64_t offset = 0;  ///< in elements, from the storage's beginning
  std::size_t storage = 0;  ///< in Contents::storages
};

struct Contents {
  std::vector<StoredBytes> storages;
  std::vector<TensorInfo> tensors;  ///< in the order of the file's dictionary; names are unique
};

/// Finds the tensors of a whole file in either form. Throws IoError naming `path`.
Contents read_contents(std::span<const std::byte> file, const std::string& path);

}  // namespace athanor::torch_file
