#pragma once

#include <array>

#include "kernels/update.h"

// Muon's operations on batches of matrices of one shape.

namespace athanor::kernels {

/// Updates the running averages of gradients for a table of matrices of one shape:
/// b += (1 - mu)(g - b); x = b, or g + mu (b - g) by Nesterov. x [matrices, rows, columns], f32 or bf16, has
/// the matrices in table order. Moves g + 8 bytes per parameter and writes x.
ATH_KERNEL(void, muon_momentum, const UpdateTable& matrices, float mu, bool nesterov, Out momentum, Out x);

/// x *= 1 / max(|x|, eps) for every matrix of x [matrices, rows, columns], dense, f32 or bf16. The Frobenius
/// norm is summed in f64. Matrices do not affect each other.
ATH_KERNEL(void, normalize, Out x, float eps);

/// An iteration of Newton and Schulz with coefficients a, b, c, for every matrix of x [matrices, rows,
/// columns], dense, f32 or bf16: next = a x + (b A + c A^2) x with A = x x^T; for tall matrices
/// a x + x (b A + c A^2) with A = x^T x. `gram` and `factor` [matrices, n, n], n the shorter side, are
/// workspace. Tensors may not overlap.
ATH_KERNEL(void, newton_schulz, const Tensor& x, const std::array<float, 3>& coefficients, Out gram,
           Out factor, Out next);

struct MuonStep {
  float weight_decay = 0;  ///< decoupled: w -= lr lambda w
  float rate_scale = 1;    ///< factor of the learning rate, for x alone
  float weight_norm = 0;   ///< if > 0, w is first scaled to this Frobenius norm
};

/// w -= lr (rate_scale x + lambda w) for the matrices of the table, x [matrices, rows, columns]. Counts the
/// update. Moves 8 bytes per parameter, reads x and writes the compute copy.
ATH_KERNEL(void, muon_apply, const UpdateTable& matrices, const MuonStep& muon, const Tensor& x);

}  // namespace athanor::kernels
