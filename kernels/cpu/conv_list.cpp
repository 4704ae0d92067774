#include "kernels/cpu/conv_list.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_tiles.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/panel_product.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/winograd.h"

// The implementations of convolutions, and the rules by which `automatic` chooses where none was measured on
// this machine. Each rule has the figures it follows from, and the CPUs on which they were measured.

namespace athanor::cpu {

extern const Implementation kConvPool, kConvFewPixels, kConvWinograd, kConvDirect, kConvScatter,
    kConvGradient, kConvDepthwiseWeights, kConvOneDnnResidual, kConvOneDnnPacked, kConvOneDnn;
extern const Implementation kConvWinogradWeights, kConvEigen, kConvEigenWeights;

namespace {

using Pass = PrimitiveKey::Op;

bool winograd_is_on() {
  static const bool on = [] {
    const char* const text = std::getenv("ATHANOR_WINOGRAD");
    const std::string_view value = text ? text : "on";
    ATH_CHECK(value == "on" || value == "off", "ATHANOR_WINOGRAD: must be on or off, but is '{}'", value);
    return value == "on";
  }();
  return on;
}

/// Cases in which our code for few pixels was measured to beat the others on a Zen 5, because filters are too
/// large for the caches and few pixels use each: oneDNN's by 1.0 to 2.2 times, Winograd's by 1.0 to 1.3.
/// Excludes smaller filters that Winograd's algorithm supports, which do fit; and 1 x 1 filters of more
/// pixels, where arithmetic takes most of the time: with oneDNN's code for these a MobileNetV2 takes 0.96 of
/// the time on a Zen 4.
bool prefers_few_pixels(const PrimitiveKey& key) {
  constexpr std::int64_t kMaxPixels = 64, kMaxOfOne = 32, kMinFilters = 1 << 17, kMinWinograd = 256 * 256;
  const ConvSize z = conv_size(key);
  const bool leave_one = z.r * z.s == 1 && kConvOneDnnPacked.fits(key);
  if (z.n * z.p * z.q > (leave_one ? kMaxOfOne : kMaxPixels) || z.r * z.s * z.c * z.k < kMinFilters)
    return false;
  return !kConvWinograd.fits(key) || z.c * z.k >= kMinWinograd;
}

/// Cases in which oneDNN with packed bf16 filters was measured to beat Winograd's algorithm on a Zen 5,
/// by 1.1 to 3 times: filters too large for the caches, which it reads in an eighth of the bytes, for few
/// pixels. (Those that it does not beat: 64 and 128 channels, by 1.5 to 1.7 times.)
bool reads_fewer_bytes(const PrimitiveKey& key) {
  constexpr std::int64_t kMaxPixels = 256, kMinFilters = 256 * 256;
  const ConvSize z = conv_size(key);
  return key.fused.packed && key.in == DType::bf16 && has_onednn() && has_avx512_bf16() &&
         z.n * z.p * z.q <= kMaxPixels && z.c * z.k >= kMinFilters;
}

/// Cases in which Winograd's algorithm was measured to beat the definition: on a Zen 5 (AVX-512) by 1.2 to
/// 3.7 times in f32, 1 to 2.5 times in bf16; on a Zen 3 (AVX2) by 1.1 to 4 times in f32; at an error of 3e-6
/// of the largest value. Excludes mostly empty tiles, so few tiles that filters dominate, CPUs where oneDNN
/// uses bf16 tiles, and bf16 backward-data of 16 channels in and out where the CPU multiplies bf16 (oneDNN is
/// 1.3 to 1.5 times as fast). ATHANOR_WINOGRAD=off excludes all, to compare results or times with those of
/// the definition.
bool prefers_winograd(const PrimitiveKey& key) {
  if (!winograd_is_on() || (key.in == DType::bf16 && has_amx_bf16()) || reads_fewer_bytes(key)) return false;
  const ConvSize z = conv_size(key);
  if (z.c == 16 && z.k == 16 && key.in == DType::bf16 && key.op == Pass::conv_backward_data &&
      has_avx512_bf16() && has_onednn())
    return false;
  const std::int64_t tiles = z.n * ((z.p + 3) / 4) * ((z.q + 3) / 4);
  return tiles >= 4 && z.n * z.p * z.q >= 4 * tiles;
}

/// Cases in which a product of Eigen's was measured to beat oneDNN 2.6 on a Zen 3 (AVX2), by 1.2 to 1.7
/// times: larger filters than 1 x 1 of many channels.
bool eigen_beats_onednn(const PrimitiveKey& key) {
  const ConvSize z = conv_size(key);
  return !has_avx512() && key.in != DType::f64 && z.groups == 1 && z.r * z.s > 1 && z.c >= 64 && z.k >= 64;
}
bool prefers_onednn(const PrimitiveKey& key) {
  return !eigen_beats_onednn(key);
}

/// Cases in which our own direct code was measured to beat oneDNN.
/// On a Zen 5 (AVX-512), f32: up to 8 output channels forward (1 -> 6 channels, 5 x 5: 1.9 times), and up to
/// 8 input channels backward (6 <- 16 channels, 5 x 5: 1.6). bf16: only on CPUs that do not multiply it (with
/// AMX oneDNN is 2 to 9 times as fast over the layers of LeNet-5, ResNet-20 and ResNet-18), and on those
/// without AMX forward from one channel (1 -> 6: 2.1 times, 1 -> 32: 1.5); ours widen it to f32. f16: these
/// two passes, always. On a Zen 3 (AVX2), f32: those cases, by 1.4 and 1.1 times; forward over 128 values or
/// more, by 1.0 to 1.4; backward-weights of up to 32 input channels, by 1.2 to 2. Half types, which oneDNN
/// does not have there, by up to 40 times.
bool prefers_direct(const PrimitiveKey& key) {
  const ConvSize z = conv_size(key);
  const bool wide = has_avx512(), filters = z.r * z.s > 1;
  if (wide && key.op == Pass::conv_backward_weights) return false;  // not measured there
  if (eigen_beats_onednn(key)) return false;
  if (key.in == DType::f16) return true;
  if (!has_onednn()) return wide || filters;
  if (key.in == DType::bf16)
    return !has_avx512_bf16() || (z.c == 1 && key.op == Pass::conv_forward && !has_amx_bf16());
  switch (key.op) {
    case Pass::conv_backward_data: return z.c <= 8;
    case Pass::conv_backward_weights: return filters && z.c <= 32;
    default: return (z.k <= 8 && z.stride_w == 1) || (!wide && filters && z.c >= 4 && z.r * z.s * z.c >= 128);
  }
}

/// Cases in which our own code for the gradient of depthwise filters was measured to beat oneDNN 2.6, whose
/// code for them is for up to 3 columns; wider filters go to its code for groups, which fills a vector with
/// one channel. On a Zen 4 (one thread) 5 x 5 and 7 x 7 filters by 6 to 26 times in f32 and 20 to 70 in bf16
/// with AVX-512, and by 4 to 12 in f32 with AVX2; 3 x 3 filters are 0.4 to 1.5 times as fast. Also half types
/// that oneDNN does not have.
bool prefers_depthwise(const PrimitiveKey& key) {
  const bool has_vendor = has_onednn() && (key.in == DType::f32 || (key.in == DType::bf16 && has_avx512()));
  return !has_vendor || conv_size(key).s > 3;
}

constexpr ListEntry kForward[] = {
    {&kConvPool},
    {&kConvFewPixels, prefers_few_pixels},
    {&kConvWinograd, prefers_winograd},
    {&kConvDirect, prefers_direct},
    {&kConvOneDnnResidual},
    {&kConvOneDnnPacked},
    {&kConvOneDnn, prefers_onednn},
    {&kConvEigen},
};
constexpr ListEntry kBackwardData[] = {
    {&kConvWinograd, prefers_winograd},
    {&kConvScatter, prefers_direct},
    {&kConvOneDnn, prefers_onednn},
    {&kConvEigen},
};
constexpr ListEntry kBackwardWeights[] = {
    {&kConvWinogradWeights, prefers_winograd},
    {&kConvGradient, prefers_direct},
    {&kConvDepthwiseWeights, prefers_depthwise},
    {&kConvOneDnn, prefers_onednn},
    {&kConvEigenWeights},
};

}  // namespace

PrimitiveKey conv_key(const CpuContext& context, Pass pass, const ConvSize& size, DType in, DType out) {
  PrimitiveKey key;
  key.op = pass;
  key.in = in;
  key.out = out;
  key.threads = threads_for(context, size.work());
  key.sizes = std::bit_cast<decltype(key.sizes)>(size);
  return key;
}

#if !defined(__x86_64__) || !defined(__GNUC__)
// What calls these fits no other CPU.
const conv_tiles::Code& conv_tiles::code() {
  std::abort();
}
template <class T> const winograd::Transforms<T>& winograd::transforms() {
  std::abort();
}
template const winograd::Transforms<float>& winograd::transforms();
template const winograd::Transforms<Half>& winograd::transforms();
template const winograd::Transforms<BFloat16>& winograd::transforms();
void multiply_panel(PanelProduct, std::int64_t, std::int64_t) {
  std::abort();
}
#endif

Code require_code(CpuContext& context, std::span<const ListEntry> list, const PrimitiveKey& key,
                  std::string_view name) {
  const Code code = find_code(context, list, key, name);
  if (code) return code;
  std::string lacks = fmt::format("{} has no code for {} of {}", name, pass_name(key.op), key.in);
  for (const ListEntry& entry : list) {
    const Implementation& one = *entry.implementation;
    if (one.name == name && one.needs) {
      lacks = one.needs(key);
      break;
    }
  }
  detail::fail<BackendError>("conv2d: {}; use ConvImpl::automatic", lacks);
}

std::span<const ListEntry> conv_list(PrimitiveKey::Op pass) {
  switch (pass) {
    case Pass::conv_backward_data: return kBackwardData;
    case Pass::conv_backward_weights: return kBackwardWeights;
    default: return kForward;
  }
}

}  // namespace athanor::cpu
