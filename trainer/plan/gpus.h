#pragma once

#include <string_view>

#include "tensor/dtype.h"

namespace athanor {

/// What the maker's data sheet says of a GPU. Products are of dense matrices, without sparsity.
struct Gpu {
  std::string_view name;   ///< "h200", for --gpu
  std::string_view title;  ///< "H200 SXM, 141 GB"
  int multiprocessors;
  double bytes_per_s;       ///< of memory, reads and writes
  double half_flops_per_s;  ///< of f16 on tensor cores; bf16 has the same, from `bf16` on
  double tf32_flops_per_s;  ///< 0: it has none
  double f32_flops_per_s, f64_flops_per_s;
  bool bf16;

  /// Peak of products of matrices of that dtype; `tf32`: f32 inputs may be rounded to use tensor cores.
  double flops_per_s(DType dtype, bool tf32) const;
};

/// Throws ArgumentError listing the known ones.
const Gpu& gpu_named(std::string_view name);

}  // namespace athanor
