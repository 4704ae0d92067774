#include "kernels/cpu/gemm.h"
#include "kernels/cpu/onednn.h"

// oneDNN's products. Its fused ReLU turns NaN into 0, which would hide a diverged run: only code for packed
// weights, of inference, has it.

namespace athanor::cpu {
namespace {

bool fits(const PrimitiveKey& key) {
  const auto& [m, n, k, a_row, a_col, b_row, b_col, y_row, u0, u1, u2, u3, u4, u5, u6, u7] = key.sizes;
  return has_onednn() && blas_like(m, k, a_row, a_col) && blas_like(k, n, b_row, b_col);
}
bool fits_packed(const PrimitiveKey& key) {
  return has_onednn() && key.fused.packed;
}

}  // namespace

extern const Implementation kMatmulOneDnn{
    .name = "vendor", .fuses = {.accumulate = true}, .fits = fits, .make = make_onednn};
extern const Implementation kMatmulOneDnnPacked{.name = "vendor",
                                                .fuses = {.packed = true},
                                                .activations = kOneDnnActivations,
                                                .fits = fits_packed,
                                                .make = make_onednn};

}  // namespace athanor::cpu
