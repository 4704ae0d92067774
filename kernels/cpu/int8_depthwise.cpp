#include "kernels/cpu/int8_depthwise.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/int8_conv.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

// 8-bit convolutions where each channel has a filter of its own. A product of vectors multiplies values of
// several rows at once (int8_depthwise.h), so the rows under a band of y are first interleaved, some channels
// at a time, in memory that stays in the first cache. If the filter has fewer rows than are interleaved, more
// than one row of y is computed of them: each with a copy of the filter that is further down, amid zeros.

namespace athanor::cpu {

#if !defined(__x86_64__) || !defined(__GNUC__)
// What calls it fits no other CPU.
const int8_depthwise::Code& int8_depthwise::code() {
  std::abort();
}
#else
const int8_depthwise::Code& int8_depthwise::code() {
  return has_avx512_vnni() ? avx512_vnni::code() : avx2::code();
}
#endif

namespace {

using int8_depthwise::Code;

std::int64_t quotient_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

/// How a convolution is divided.
struct Plan : ConvSize {
  const Code& code;
  std::int64_t groups;   ///< of rows that are interleaved, for a band
  std::int64_t rows;     ///< of y, of a band
  std::int64_t columns;  ///< that are interleaved
  std::int64_t blocks;   ///< of channels

  Plan(const ConvSize& size, const Code& of)
      : ConvSize(size),
        code(of),
        groups(quotient_up(r, of.taps)),
        rows(dilation_h == 1 ? (groups * of.taps - r) / stride_h + 1 : 1),
        columns((q - 1) * stride_w + (s - 1) * dilation_w + 1),
        blocks(quotient_up(c, of.lanes)) {}

  /// Bytes of a filter of a block of channels, for one row of y.
  std::int64_t filter_bytes() const { return groups * s * code.vector_bytes(); }
};

/// [blocks, rows of y in a band, groups, columns of the filter, lane, taps]
class BandFilters final : public kernels::Int8Layout {
 public:
  explicit BandFilters(const Plan& plan) : plan_(plan) {}

  bool equals(const Int8Layout& other) const override {
    const auto* const same = dynamic_cast<const BandFilters*>(&other);
    return same && same->plan_.c == plan_.c && same->plan_.r == plan_.r && same->plan_.s == plan_.s &&
           same->plan_.rows == plan_.rows && same->offset() == offset();
  }
  std::size_t bytes() const override {
    return static_cast<std::size_t>(plan_.blocks * plan_.rows * plan_.filter_bytes());
  }
  void fill(const std::int8_t* weights, std::byte* to) const override {
    if (plan_.code.weight_bytes == 1) return fill_as(weights, reinterpret_cast<std::int8_t*>(to));
    fill_as(weights, reinterpret_cast<std::int16_t*>(to));
  }

 private:
  /// Rows of x from a row of y to the next.
  std::int64_t offset() const { return plan_.rows > 1 ? plan_.stride_h : 0; }

  template <class T> void fill_as(const std::int8_t* weights, T* to) const {
    const std::int64_t lanes = plan_.code.lanes, taps = plan_.code.taps;
    for (std::int64_t first = 0; first < plan_.blocks * lanes; first += lanes)
      for (std::int64_t row = 0; row < plan_.rows; ++row)
        for (std::int64_t group = 0; group < plan_.groups; ++group)
          for (std::int64_t s = 0; s < plan_.s; ++s)
            for (std::int64_t k = first; k < first + lanes; ++k)
              for (std::int64_t tap = 0; tap < taps; ++tap) {
                const std::int64_t r = group * taps + tap - row * offset();
                const bool inside = k < plan_.c && r >= 0 && r < plan_.r;
                *to++ = inside ? weights[(k * plan_.r + r) * plan_.s + s] : T(0);
              }
  }

  Plan plan_;
};

class Int8Depthwise final : public Primitive {
 public:
  Int8Depthwise(const PrimitiveKey& key, const Code& code)
      : plan_(conv_size(key), code),
        threads_(key.threads),
        rounds_(key.out == DType::u8),
        layout_(std::make_shared<BandFilters>(plan_)) {}

  void run(const CpuContext& context, const Operands& at) override {
    const std::int64_t bands = quotient_up(plan_.p, plan_.rows), tasks = plan_.n * bands * plan_.blocks;
    const std::int64_t slots = std::min<std::int64_t>(threads_, tasks);
    const std::int64_t pointers = quotient_up(plan_.groups * plan_.code.taps, 8) * 8;  // a cache line's
    const std::int64_t columns = plan_.groups * plan_.columns * plan_.code.vector_bytes();
    const SlotScratch& own = context.slot_scratch(
        slots, static_cast<std::size_t>(pointers) * sizeof(void*) + static_cast<std::size_t>(columns));
    for_each_slot(context, slots, tasks, [&](std::int64_t slot, const auto& each_piece) {
      auto* const rows = own.as<const std::uint8_t*>(slot);
      auto* const interleaved = reinterpret_cast<std::byte*>(rows + pointers);
      each_piece([&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t task = begin; task < end; ++task) {
          const std::int64_t block = task % plan_.blocks, band = task / plan_.blocks;
          run_band(at, band / bands, band % bands * plan_.rows, block, rows, interleaved);
        }
      });
    });
  }
  std::shared_ptr<const kernels::Int8Layout> int8_layout() const override { return layout_; }

 private:
  /// The rows of y from row p of image n on, a block of channels.
  void run_band(const Operands& at, std::int64_t n, std::int64_t p, std::int64_t block,
                const std::uint8_t** rows, std::byte* interleaved) const {
    const Code& code = plan_.code;
    const Int8Operands& step = *at.int8;
    const std::int64_t first = block * code.lanes, channels = std::min(code.lanes, plan_.c - first);
    const auto* const x =
        static_cast<const std::uint8_t*>(at.first) + n * plan_.h * plan_.w * plan_.c + first;
    for (std::int64_t i = 0; i < plan_.groups * code.taps; ++i) {
      const std::int64_t h = plan_.row(p, i);
      rows[i] = h >= 0 && h < plan_.h ? x + h * plan_.w * plan_.c : nullptr;
    }
    code.interleave({rows, plan_.c, plan_.padding_w, plan_.w, plan_.columns, plan_.groups, channels,
                     static_cast<std::uint8_t>(step.x_zero), interleaved});

    float multiplier[kMaxLanes] = {};
    std::int32_t bias[kMaxLanes] = {};
    std::copy_n(step.multiplier + first, channels, multiplier);
    std::copy_n(static_cast<const std::int32_t*>(at.bias) + first, channels, bias);
    const std::int64_t row = plan_.q * plan_.c, count = std::min(plan_.rows, plan_.p - p);
    const auto* const w =
        static_cast<const std::byte*>(at.second) + block * plan_.rows * plan_.filter_bytes();
    for (std::int64_t i = 0; i < count; i += 2) {
      const std::int64_t to = (n * plan_.p + p + i) * row + first;
      code.sums({.x = interleaved,
                 .columns = plan_.columns,
                 .stride = plan_.stride_w,
                 .dilation = plan_.dilation_w,
                 .groups = plan_.groups,
                 .taps = plan_.s,
                 .w = w + i * plan_.filter_bytes(),
                 .rows = std::min<std::int64_t>(2, count - i),
                 .width = plan_.q,
                 .channels = channels,
                 .multiplier = multiplier,
                 .bias = bias,
                 .row = row,
                 .step = plan_.c,
                 .y = rounds_ ? static_cast<std::uint8_t*>(at.out) + to : nullptr,
                 .real = rounds_ ? nullptr : static_cast<float*>(at.out) + to,
                 .residual = at.residual ? static_cast<const std::uint8_t*>(at.residual) + to : nullptr,
                 .residual_scale = step.residual_scale,
                 .residual_zero = step.residual_zero,
                 .rounding = step.rounding});
    }
  }

  static constexpr std::int64_t kMaxLanes = 16;

  Plan plan_;
  int threads_;
  bool rounds_;
  std::shared_ptr<const BandFilters> layout_;
};

bool fits(const PrimitiveKey& key) {
  const ConvSize z = conv_size(key);
  return has_avx2() && z.groups == z.c && z.k == z.c;
}
MadePrimitive make(const PrimitiveKey& key) {
  const bool wide = has_avx512_vnni();
  return {std::make_unique<Int8Depthwise>(key, int8_depthwise::code()),
          wide ? "depthwise, AVX-512 VNNI" : "depthwise, AVX2"};
}

}  // namespace

extern const Implementation kInt8Depthwise{
    .name = "depthwise", .fuses = {.residual = true}, .fits = fits, .make = make};

}  // namespace athanor::cpu
