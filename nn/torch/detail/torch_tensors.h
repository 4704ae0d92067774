#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nn/torch/weight_parts.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

// The contents of a torch.save() file, fully checked except for values. Private to nn/.

namespace athanor::torch_file {

/// A byte range of the file that tensors view.
struct StoredBytes {
  std::uint64_t begin = 0, bytes = 0;
};

/// A tensor; its last element is inside its storage.
struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;
  std::int64_t offset = 0;  ///< in elements, from the beginning of the storage
  std::size_t storage = 0;  ///< index in Contents::storages
};

struct Contents {
  std::vector<StoredBytes> storages;
  std::vector<TensorInfo> tensors;  ///< in the order of the file's dictionary; names are unique
  WeightParts parts;                ///< of torch_file::load()
};

/// Finds the tensors of a file in either form; `averages` as in torch_file::load(). Throws IoError naming
/// `path`.
Contents read_contents(std::span<const std::byte> file, const std::string& path, bool averages);

}  // namespace athanor::torch_file
