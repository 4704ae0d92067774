#pragma once

#include <cstdint>

#include "optim/muon.h"
#include "tensor/tensor.h"

namespace athanor {

/// Orthogonalises batches of matrices [count, rows, columns] in f32 or bf16:
///
///     X /= max(|X|, eps);   iterations times:  A = X X^T;  X = a X + (b A + c A^2) X
///
/// for a tall X transposed, so that A has the shorter side. Source: Bernstein and Newhouse 2024,
/// arXiv:2409.20325.
class NewtonSchulz {
 public:
  NewtonSchulz() = default;
  /// Workspace for batches of at most `elements` elements, whose A have at most `squares`.
  NewtonSchulz(DType dtype, Device device, std::int64_t elements, std::int64_t squares);

  /// Where the caller writes a batch.
  Tensor input(const Shape& matrices) const;
  /// Orthogonalises it; the result lies in the workspace.
  Tensor run(const Shape& matrices, const MuonOptions& options) const;

 private:
  Tensor x_, next_, gram_, factor_;  // flat
};

}  // namespace athanor
