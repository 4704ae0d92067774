#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/onednn.h"

// oneDNN's convolutions. Its fused ReLU turns NaN into 0, which would hide a diverged run, and its other
// activations round otherwise than ours: only code for packed weights, of inference, has them.

namespace athanor::cpu {
namespace {

bool fits(const PrimitiveKey&) {
  return has_onednn();
}

bool fits_packed(const PrimitiveKey& key) {
  return has_onednn() && key.fused.packed;
}

/// oneDNN 2.6 adds a wrong residual to pixels whose whole filter lies on padding.
bool fits_residual(const PrimitiveKey& key) {
  const ConvSize z = conv_size(key);
  return fits_packed(key) && key.fused.residual && z.padding_h < (z.r - 1) * z.dilation_h + 1 &&
         z.padding_w < (z.s - 1) * z.dilation_w + 1;
}

std::string needs(const PrimitiveKey& key) {
  if (!has_onednn()) return "this build has no oneDNN";
  const ConvSize z = conv_size(key);
  return fmt::format("oneDNN has no fast code for {} x [{}, {}, {}, {}] with [{}, {}, {}, {}] filters",
                     key.in, z.n, z.h, z.w, z.c, z.k, z.r, z.s, z.group_c());
}

}  // namespace

extern const Implementation kConvOneDnn{
    .name = "vendor", .fuses = {}, .fits = fits, .make = make_onednn, .needs = needs};
extern const Implementation kConvOneDnnPacked{.name = "vendor",
                                              .fuses = {.packed = true},
                                              .activations = kOneDnnActivations,
                                              .fits = fits_packed,
                                              .make = make_onednn,
                                              .needs = needs};
extern const Implementation kConvOneDnnResidual{.name = "vendor",
                                                .fuses = {.residual = true, .packed = true},
                                                .activations = kOneDnnActivations,
                                                .fits = fits_residual,
                                                .make = make_onednn,
                                                .needs = needs};

}  // namespace athanor::cpu
