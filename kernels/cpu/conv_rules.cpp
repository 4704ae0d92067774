#include "kernels/cpu/conv_rules.h"

#include <cstdlib>
#include <string_view>

#include "kernels/cpu/conv_few_pixels.h"
#include "kernels/cpu/conv_impl.h"
#include "kernels/cpu/conv_winograd.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/onednn.h"

namespace athanor::cpu {

using Pass = PrimitiveKey::Op;

namespace {

bool winograd_is_on() {
  static const bool on = [] {
    const char* const text = std::getenv("ATHANOR_WINOGRAD");
    const std::string_view value = text ? text : "on";
    ATH_CHECK(value == "on" || value == "off", "ATHANOR_WINOGRAD: must be on or off, but is '{}'", value);
    return value == "on";
  }();
  return on;
}

}  // namespace

bool prefers_few_pixels(const ConvSize& z) {
  constexpr std::int64_t kMaxPixels = 64, kMinFilters = 1 << 17, kMinWinograd = 256 * 256;
  if (!conv_few_pixels_fits(z) || z.n * z.p * z.q > kMaxPixels || z.r * z.s * z.c * z.k < kMinFilters)
    return false;
  return !winograd_fits(z) || z.c * z.k >= kMinWinograd;
}

bool prefers_winograd(const ConvSize& z, Pass pass, DType dtype) {
  if (!winograd_is_on() || (dtype == DType::bf16 && has_amx_bf16())) return false;
  if (z.c == 16 && z.k == 16 && dtype == DType::bf16 && pass == Pass::conv_backward_data &&
      has_avx512_bf16() && has_onednn())
    return false;
  const std::int64_t tiles = z.n * ((z.p + 3) / 4) * ((z.q + 3) / 4);
  return tiles >= 4 && z.n * z.p * z.q >= 4 * tiles;
}

bool direct_fits(const ConvSize& z, Pass pass, DType dtype) {
  if (dtype == DType::f64) return false;
  return pass == Pass::conv_forward         ? conv_direct_fits(z)
         : pass == Pass::conv_backward_data ? conv_scatter_fits(z)
                                            : conv_gradient_fits(z);
}

bool prefers_direct(const ConvSize& z, Pass pass, DType dtype) {
  const bool wide = has_avx512(), filters = z.r * z.s > 1;
  if (wide && pass == Pass::conv_backward_weights) return false;  // not measured there
  if (prefers_eigen(z, dtype)) return false;
  if (dtype == DType::f16) return true;
  if (!has_onednn()) return wide || filters;
  if (dtype == DType::bf16)
    return !has_avx512_bf16() || (z.c == 1 && pass == Pass::conv_forward && !has_amx_bf16());
  switch (pass) {
    case Pass::conv_backward_data: return z.c <= 8;
    case Pass::conv_backward_weights: return filters && z.c <= 32;
    default: return (z.k <= 8 && z.stride_w == 1) || (!wide && filters && z.c >= 4 && z.r * z.s * z.c >= 128);
  }
}

bool prefers_eigen(const ConvSize& z, DType dtype) {
  return !has_avx512() && dtype != DType::f64 && z.groups == 1 && z.r * z.s > 1 && z.c >= 64 && z.k >= 64;
}

}  // namespace athanor::cpu
