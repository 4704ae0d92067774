#pragma once

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

/// y = alpha x + beta I for every matrix of x and y [matrices, n, n], dense, f32 or bf16. y may be x.
ATH_KERNEL(void, scale_add_identity, const Tensor& x, float alpha, float beta, Out y);
ATH_MAP(scale_add_identity, (const Tensor& x, float, float, Out y), "scale_add_identity", (x), (y))

struct MuonStep {
  float weight_decay = 0;  ///< decoupled: w -= lr lambda w
  float rate_scale = 1;    ///< factor of the learning rate, for x alone
  float weight_norm = 0;   ///< if > 0, w is first scaled to this Frobenius norm
};

/// w -= lr (rate_scale x + lambda w) for the matrices of the table, x [matrices, rows, columns]. Counts the
/// update. Moves 8 bytes per parameter, reads x and writes the compute copy.
ATH_KERNEL(void, muon_apply, const UpdateTable& matrices, const MuonStep& muon, const Tensor& x);

}  // namespace athanor::kernels
