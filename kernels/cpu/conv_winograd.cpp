#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/panel_product.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/winograd.h"
#include "kernels/cpu/winograd_fetch.h"
#include "kernels/scratch.h"

// Convolutions of 3 x 3 filters by Winograd's algorithm, directly on NHWC memory. At each of 36 points,
// transformed input tiles and filters form matrices, [tiles, C] and [C, K]; the convolution is their product,
// with 4 times fewer multiplications than the definition. A block of tiles is small enough for its matrices
// to stay in a core's L2 cache between steps.
//
// backward-data does the same with dy and rotated filters. Backward-weights: conv_winograd_gradient.cpp.

namespace athanor::cpu {
namespace {

using namespace winograd;

static_assert(kWidth == kPanelColumns);

constexpr std::int64_t kBlock = 48;              // tiles whose products fit in L2 cache
constexpr std::int64_t kLargeFilters = 64 * 64;  // C K of filters too large for a core's caches
constexpr std::int64_t kSmallBlock = 8;          // tiles worth a thread of their own
constexpr std::int64_t kOwnInputs = 1 << 17;  // floats at the points that each thread transforms for itself

// Passes ---------------------------------------------------------------------------------------------------

/// Forward, or backward-data, which reads dy and writes dx.
struct Convolution {
  Images in, out;
  std::int64_t pad_h, pad_w;
  Filters filters;

  explicit Convolution(const PrimitiveKey& key) : in(), out(), pad_h(), pad_w(), filters() {
    const auto [n, h, w, c, k, r, s, p, q, sh, sw, ph, pw, dh, dw, g] = key.sizes;
    in = {n, h, w, c}, out = {n, p, q, k}, pad_h = ph, pad_w = pw, filters = {c, k, c, false};
    if (key.op != PrimitiveKey::Op::conv_backward_data) return;
    std::swap(in, out);
    pad_h = kTaps - 1 - ph, pad_w = kTaps - 1 - pw, filters = {k, c, c, true};
  }
};

template <class T> class Pass {
 public:
  /// Filters are `packed`, or plain in w.
  Pass(const CpuContext& context, const Convolution& z, const T* x, const T* w, const float* packed,
       const Finish<T>& finish, T* y)
      : context_(context), z_(z), tiles_(z.out), x_(x), w_(w), packed_(packed), finish_(finish), y_(y) {}

  // Threads share the tiles, or where these are few, so that filters dominate, the panels of filters.
  void run() const {
    const std::int64_t of_panels = slots_of(panels()),
                       of_tiles = slots_of(quotient_up(tiles_.count, kSmallBlock));
    if (tiles_.count <= z_.out.c / 2 && of_panels >= of_tiles) return by_panels(of_panels);
    by_tiles(of_tiles);
  }

 private:
  std::int64_t slots_of(std::int64_t parts) const {
    return std::min<std::int64_t>(context_.threads(), parts);
  }
  std::int64_t panels() const { return z_.filters.panels(); }
  std::int64_t depth() const { return z_.in.c; }
  std::int64_t width() const { return z_.filters.width(); }
  Points filters(const float* data) const { return {const_cast<float*>(data), depth(), width()}; }
  void read(std::int64_t first, std::int64_t count, const Points& v, std::int64_t first_row) const {
    transforms<T>().inputs_to_points(z_.in, x_, tiles_, z_.pad_h, z_.pad_w, first, count, v, first_row);
  }

  Upcoming inputs_of(std::int64_t first, std::int64_t count) const {
    return upcoming_inputs(z_.in, x_, tiles_, z_.pad_h, first, count, panels() * kPoints);
  }
  // Of y or a residual. The first panel already needs them.
  Upcoming outputs_of(const T* data, std::int64_t first, std::int64_t count) const {
    return upcoming_outputs(z_.out, data, tiles_, first, count, kPoints);
  }
  struct Ahead {
    Upcoming inputs, outputs, residual;

    void fetch(std::int64_t piece) const { inputs.fetch(piece), outputs.fetch(piece), residual.fetch(piece); }
  };

  // Computes the outputs of tiles [first, first + count), whose inputs begin at row first_row of v. Products
  // keep a core busy and memory idle, so what comes after them is fetched meanwhile.
  void multiply(std::int64_t panel, const Points& u, const Points& v, std::int64_t first_row,
                std::int64_t first, std::int64_t count, const Points& m, const Ahead& ahead = {}) const {
    for (int p = 0; p < kPoints; ++p) {
      ahead.fetch(panel * kPoints + p);
      multiply_panel({.x = v.at(0, p) + first_row * depth(),
                      .row = depth(),
                      .next = 1,
                      .w = u.at(0, p),
                      .depth = depth(),
                      .out = m.at(0, p),
                      .width = width(),
                      .accumulate = false,
                      .fetch_ahead = packed_ && depth() * z_.out.c >= kLargeFilters},
                     count, z_.out.c - panel * kWidth);
    }
    transforms<T>().write_outputs(z_.out, tiles_, first, count, panel, m, finish_, y_);
  }

  // Each thread transforms all inputs for itself if they fit in its cache: to get them from another core
  // takes longer.
  void by_panels(std::int64_t slots) const {
    const std::int64_t rows = round_up(tiles_.count, 4), block = std::min(kBlock, rows);
    const std::int64_t inputs = Points::floats(rows, depth()), products = Points::floats(block, width()),
                       own_filters = packed_ ? 0 : Points::floats(depth(), width());
    const bool own_inputs = inputs <= kOwnInputs;
    const SlotScratch& own = context_.slot_scratch(
        slots, static_cast<std::size_t>(products + own_filters + (own_inputs ? inputs : 0)) * sizeof(float));
    const Scratch shared =
        context_.scratch(own_inputs ? 0 : static_cast<std::size_t>(inputs) * sizeof(float));
    if (!own_inputs) {
      parallel_for(context_, tiles_.count, std::max<std::int64_t>(1, kGrain / (kPoints * depth())),
                   [&](std::int64_t begin, std::int64_t end) {
                     read(begin, end - begin, {shared.as<float>(), rows, depth()}, begin);
                   });
    }
    for_each_slot(context_, slots, panels(), [&](std::int64_t slot, const auto& each_piece) {
      float* const mine = own.as<float>(slot);
      const Points m{mine, block, width()};
      const Points v{own_inputs ? mine + products + own_filters : shared.as<float>(), rows, depth()};
      if (own_inputs) read(0, tiles_.count, v, 0);
      each_piece([&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t panel = begin; panel < end; ++panel) {
          const Points u = packed_ ? filters(packed_).panel(panel) : filters(mine + products);
          if (!packed_) transforms<T>().filters_to_points(z_.filters, w_, panel, u);
          for (std::int64_t first = 0; first < tiles_.count; first += block)
            multiply(panel, u, v, first, first, std::min(block, tiles_.count - first), m);
        }
      });
    });
  }

  void by_tiles(std::int64_t slots) const {
    const std::int64_t most = depth() <= 64 ? kBlock : kBlock / 2;
    // Equal numbers for each thread.
    const std::int64_t blocks = round_up(quotient_up(tiles_.count, most), slots),
                       block = round_up(quotient_up(tiles_.count, blocks), 4);
    const std::int64_t shared = packed_ ? 0 : Points::floats(depth(), width(), panels());
    const std::int64_t inputs = Points::floats(block, depth()), products = Points::floats(block, width());
    const SlotScratch& own =
        context_.slot_scratch(slots, static_cast<std::size_t>(inputs + products) * sizeof(float));
    const Scratch scratch = context_.scratch(static_cast<std::size_t>(shared) * sizeof(float));
    const Points u = filters(packed_ ? packed_ : scratch.as<float>());
    if (!packed_) {
      parallel_for(context_, panels(), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          transforms<T>().filters_to_points(z_.filters, w_, i, u.panel(i));
      });
    }
    for_each_slot(context_, slots, blocks, [&](std::int64_t slot, const auto& each_piece) {
      float* const mine = own.as<float>(slot);
      const Points v{mine, block, depth()}, m{mine + inputs, block, width()};
      each_piece([&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t first = i * block, count = std::min(block, tiles_.count - first);
          if (count <= 0) break;
          read(first, count, v, 0);
          const T* const residual = finish_.residual == y_ ? nullptr : finish_.residual;
          const Ahead ahead{inputs_of(first + count, block), outputs_of(y_, first, count),
                            outputs_of(residual, first, count)};
          for (std::int64_t panel = 0; panel < panels(); ++panel)
            multiply(panel, u.panel(panel), v, 0, first, count, m, ahead);
        }
      });
    });
  }

  const CpuContext& context_;
  const Convolution& z_;
  const Tiles tiles_;
  const T *x_, *w_;
  const float* packed_;
  const Finish<T> finish_;
  T* y_;
};

/// Adds up the sums of all tiles of images [n, h, w, channels] in order.
void total_channel_sums(const Images& z, const TileSums& from, double* sums) {
  const Tiles tiles(z);
  std::fill(sums, sums + 2 * z.c, 0.0);
  for (std::int64_t first = 0; first < tiles.count; first += TileSums::kTiles) {
    std::int64_t pixels = 0;
    for (std::int64_t i = first; i < std::min(first + TileSums::kTiles, tiles.count); ++i) {
      const auto [image, top, left] = tiles.at(i);
      pixels += std::min<std::int64_t>(kOut, z.h - top) * std::min<std::int64_t>(kOut, z.w - left);
    }
    const double n = static_cast<double>(pixels);
    const float *const shift = from.of(first), *const sum = shift + z.c, *const squares = sum + z.c;
    for (std::int64_t c = 0; c < z.c; ++c) {
      const auto h = static_cast<double>(shift[c]), s = static_cast<double>(sum[c]);
      sums[c] += s + n * h;
      sums[z.c + c] += static_cast<double>(squares[c]) + h * (2 * s + n * h);
    }
  }
}

/// All filters transformed to the points.
class FilterPoints final : public kernels::WeightLayout {
 public:
  explicit FilterPoints(const Filters& filters) : filters_(filters) {}

  bool equals(const WeightLayout& other) const override {
    const auto* const same = dynamic_cast<const FilterPoints*>(&other);
    return same && same->filters_.depth == filters_.depth && same->filters_.columns == filters_.columns;
  }
  std::size_t bytes() const override {
    return static_cast<std::size_t>(Points::floats(filters_.depth, filters_.width(), filters_.panels())) *
           sizeof(float);
  }
  void fill(const CpuContext& context, const float* weights, void* to) const override {
    const Points all{static_cast<float*>(to), filters_.depth, filters_.width()};
    parallel_for(context, filters_.panels(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        transforms<float>().filters_to_points(filters_, weights, i, all.panel(i));
    });
  }

 private:
  Filters filters_;
};

template <class T> class Winograd final : public Primitive {
 public:
  explicit Winograd(const PrimitiveKey& key)
      : key_(key),
        convolution_(key),
        layout_(key.fused.packed ? std::make_shared<FilterPoints>(convolution_.filters) : nullptr) {}

  void run(const CpuContext& context, const Operands& at) override {
    const auto* const x = static_cast<const T*>(at.first);
    const auto* const w = static_cast<const T*>(at.second);
    auto* const out = static_cast<T*>(at.out);
    if (key_.fused.sums) return run_with_sums(context, x, w, out, at.sums);
    const void* const residual = key_.fused.accumulate ? at.out : at.residual;  // which out may share
    const auto* const packed = key_.fused.packed ? static_cast<const float*>(at.second) : nullptr;
    const bool widens = at.bias && !packed && !std::is_same_v<T, float>;
    const std::int64_t channels = convolution_.out.c;
    const Scratch wide = context.scratch(widens ? static_cast<std::size_t>(channels) * sizeof(float) : 0);
    const float* bias = static_cast<const float*>(at.bias);
    if (widens) {
      std::transform(static_cast<const T*>(at.bias), static_cast<const T*>(at.bias) + channels,
                     wide.as<float>(), [](T value) { return static_cast<float>(value); });
      bias = wide.as<float>();
    }
    const Finish<T> finish{bias, static_cast<const T*>(residual), key_.fused.activation == Activation::relu};
    Pass<T>(context, convolution_, x, w, packed, finish, out).run();
  }
  std::shared_ptr<const kernels::WeightLayout> layout() const override { return layout_; }

 private:
  // Sums of y as it is rounded, in an order that does not depend on the number of threads.
  void run_with_sums(const CpuContext& context, const T* x, const T* w, T* y, double* sums) const {
    const Images& z = convolution_.out;
    const std::int64_t groups = quotient_up(Tiles(z).count, TileSums::kTiles);
    const Scratch memory = context.scratch(static_cast<std::size_t>(groups * 3 * z.c) * sizeof(float));
    const TileSums of_tiles{memory.as<float>(), z.c};
    Pass<T>(context, convolution_, x, w, nullptr, {nullptr, nullptr, false, of_tiles}, y).run();
    total_channel_sums(z, of_tiles, sums);
  }

  PrimitiveKey key_;
  Convolution convolution_;
  std::shared_ptr<const kernels::WeightLayout> layout_;
};

bool fits(const PrimitiveKey& key) {
  const ConvSize z = conv_size(key);
  return has_avx2() && key.in != DType::f64 && z.r == kTaps && z.s == kTaps && z.stride_h == 1 &&
         z.stride_w == 1 && z.dilation_h == 1 && z.dilation_w == 1 && z.padding_h < kTaps &&
         z.padding_w < kTaps && z.groups == 1 && z.h > 0 && z.w > 0 && z.c > 0 && z.c % kLanes == 0 &&
         z.k % kLanes == 0;
}

MadePrimitive make(const PrimitiveKey& key) {
  const char* const name = has_avx512() ? "winograd 4x3, AVX-512" : "winograd 4x3, AVX2";
  switch (key.in) {
    case DType::f32: return {std::make_unique<Winograd<float>>(key), name};
    case DType::f16: return {std::make_unique<Winograd<Half>>(key), name};
    case DType::bf16: return {std::make_unique<Winograd<BFloat16>>(key), name};
    default: return {};
  }
}

std::string needs(const PrimitiveKey&) {
  return "Winograd's algorithm needs AVX2, f32 or a half type, images that are not empty, 3 x 3 filters of "
         "multiples of 16 channels, stride and dilation 1, padding up to 2 and one group";
}

}  // namespace

extern const Implementation kConvWinograd{
    .name = "winograd",
    .fuses = {.residual = true, .accumulate = true, .packed = true, .sums = true},
    .activations = kOnlyRelu,
    .fits = fits,
    .make = make,
    .needs = needs};

}  // namespace athanor::cpu
