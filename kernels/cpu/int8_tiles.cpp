#include "kernels/cpu/int8_tiles.h"

#include <algorithm>
#include <memory>
#include <type_traits>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/int8_conv.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/detail/conv_size.h"

// 8-bit convolutions, dense or in groups. The work is cut in items: some output pixels times some blocks of
// channels. An item whose filters read padding, or whose code needs i16, first copies what lies under its
// pixels into a frame, so that no inner loop tests for the border; others read x in place. For each block of
// channels, whose weights stay in a cache meanwhile, all pixels are then computed in tiles (int8_tiles.h),
// from the first tap to the rounded result in registers.

namespace athanor::cpu {
namespace {

using int8_tiles::Code;
using int8_tiles::kLanes;

constexpr std::int64_t kItemBytes = 128 << 10;  ///< of x in an item: a part of a core's L2 cache
constexpr std::int64_t kFewPixels = 28;         ///< of an item: weights are read from a cache for each tile
constexpr std::int64_t kItems = 4;              ///< for each thread
constexpr std::int64_t kOverread = 64;          ///< after a frame: the last word's unused values

std::int64_t quotient_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

struct Sizes : ConvSize {
  explicit Sizes(const ConvSize& z) : ConvSize(z) {
    if (is_pointwise()) w = q = n * h * w, n = h = p = 1;  // one row of pixels
  }

  /// Adjacent taps of a row are contiguous: one piece of s c values, else s pieces.
  bool merged() const { return groups == 1 && dilation_w == 1; }
  std::int64_t pieces() const { return merged() ? 1 : s; }
  std::int64_t values() const { return merged() ? s * c : group_c(); }  ///< of a piece
  std::int64_t frame_rows(std::int64_t rows) const {
    return (rows - 1) * stride_h + (r - 1) * dilation_h + 1;
  }
  std::int64_t frame_columns(std::int64_t columns) const {
    return (columns - 1) * stride_w + (s - 1) * dilation_w + 1;
  }
};

/// [groups, blocks, R, pieces, words, channels of the block], a word each: zeros where there is no value or
/// channel. The last block of a group has only as many times 16 channels as it needs.
class TileLayout final : public kernels::Int8Layout {
 public:
  TileLayout(const Sizes& z, const Code& code) : z_(z), code_(code) {}

  std::int64_t words() const { return quotient_up(z_.values(), code_.values()); }
  std::int64_t depth() const { return z_.r * z_.pieces() * words(); }
  std::int64_t block() const { return code_.blocks * kLanes; }
  std::int64_t blocks() const { return quotient_up(z_.group_k(), block()); }  ///< of a group
  /// Channels of a block, a multiple of 16.
  std::int64_t lanes(std::int64_t block) const {
    return std::min(this->block(), quotient_up(z_.group_k() - block * this->block(), kLanes) * kLanes);
  }
  std::int64_t offset(std::int64_t group, std::int64_t block) const {
    return (group * group_lanes() + block * this->block()) * depth() * 4;
  }

  bool equals(const Int8Layout& other) const override {
    const auto* const same = dynamic_cast<const TileLayout*>(&other);
    return same && &same->code_ == &code_ && same->z_.k == z_.k && same->z_.r == z_.r && same->z_.s == z_.s &&
           same->z_.c == z_.c && same->z_.groups == z_.groups && same->z_.merged() == z_.merged();
  }
  std::size_t bytes() const override { return static_cast<std::size_t>(offset(z_.groups, 0)); }
  void fill(const std::int8_t* weights, std::byte* to) const override {
    if (code_.bytes == 1)
      fill_values(weights, reinterpret_cast<std::int8_t*>(to));
    else
      fill_values(weights, reinterpret_cast<std::int16_t*>(to));
  }

 private:
  std::int64_t group_lanes() const { return quotient_up(z_.group_k(), kLanes) * kLanes; }

  template <class T> void fill_values(const std::int8_t* weights, T* to) const {
    const std::int64_t row = z_.s * z_.group_c();
    for (std::int64_t group = 0; group < z_.groups; ++group) {
      for (std::int64_t b = 0; b < blocks(); ++b) {
        for (std::int64_t r = 0; r < z_.r; ++r) {
          for (std::int64_t at = 0; at < z_.pieces() * words(); ++at) {
            for (std::int64_t lane = 0; lane < lanes(b); ++lane) {
              const std::int64_t k = b * block() + lane, piece = at / words() * z_.values();
              const std::int8_t* const from = weights + ((group * z_.group_k() + k) * z_.r + r) * row + piece;
              for (std::int64_t i = 0; i < code_.values(); ++i) {
                const std::int64_t value = at % words() * code_.values() + i;
                *to++ = k < z_.group_k() && value < z_.values() ? from[value] : T{0};
              }
            }
          }
        }
      }
    }
  }

  Sizes z_;
  const Code& code_;
};

/// A range cut in parts of similar size.
struct Cut {
  std::int64_t size, parts;

  /// Parts of at most `part`.
  static Cut by(std::int64_t size, std::int64_t part) {
    return {size, quotient_up(size, std::max<std::int64_t>(part, 1))};
  }
  std::int64_t begin(std::int64_t part) const { return size * part / parts; }
  std::int64_t largest() const { return quotient_up(size, parts); }
  std::int64_t smallest() const { return size / parts; }
};

/// The items: which images, rows and columns of y, and which blocks of all groups.
struct Items {
  Cut n, p, q, blocks;

  Items(const Sizes& z, const Code& code, std::int64_t all_blocks, int threads) {
    const std::int64_t pixel = z.c * code.bytes,
                       column = std::max<std::int64_t>(z.frame_rows(1) * z.stride_w * pixel, 1);
    const std::int64_t row = std::max<std::int64_t>(z.frame_columns(z.q) * pixel, 1);
    std::int64_t images = 1, rows = 1,
                 columns = std::clamp(kItemBytes / column, std::min(kFewPixels, z.q), z.q);
    if (columns == z.q) {
      rows = std::clamp<std::int64_t>((kItemBytes / row - z.frame_rows(1)) / z.stride_h + 1, 1, z.p);
      if (rows == z.p) images = std::clamp<std::int64_t>(kItemBytes / (z.frame_rows(rows) * row), 1, z.n);
      if (images > 1) images -= images % 2;  // for pairs of equal rows
    }
    if (threads > 1) {
      const std::int64_t wanted = kItems * threads, of_image = quotient_up(wanted, z.n);
      images = std::min(images, quotient_up(z.n, wanted));
      rows = std::min(rows, std::max(quotient_up(z.p, of_image), quotient_up(kFewPixels, columns)));
      const std::int64_t of_row = quotient_up(of_image, quotient_up(z.p, rows));
      columns = std::min(columns, std::max(quotient_up(z.q, of_row), kFewPixels));
    }
    n = Cut::by(z.n, images), p = Cut::by(z.p, rows), q = Cut::by(z.q, columns);
    const std::int64_t more = threads > 1 ? quotient_up(kItems * threads, n.parts * p.parts * q.parts) : 1;
    blocks = {all_blocks, std::min(all_blocks, more)};
  }

  std::int64_t count() const { return n.parts * p.parts * q.parts * blocks.parts; }
};

/// Pixels of a run: as many as give the fewest tiles for what they cost.
std::int64_t run_length(const Items& items, const Code& code) {
  std::int64_t best = 1, least = 0;
  for (std::int64_t pixels = 1; pixels <= std::min(code.pixels, items.q.smallest()); ++pixels) {
    const std::int64_t runs = items.n.largest() * items.p.largest() * quotient_up(items.q.largest(), pixels);
    const std::int64_t cost = quotient_up(runs, 2) * (4 * pixels + 1);  // a tile has a fixed overhead
    if (pixels == 1 || cost <= least) best = pixels, least = cost;
  }
  return best;
}

class Int8Tiles final : public Primitive {
 public:
  Int8Tiles(const PrimitiveKey& key, const Code& code)
      : z_(conv_size(key)),
        code_(code),
        rounds_(key.out == DType::u8),
        layout_(std::make_shared<TileLayout>(z_, code)),
        in_place_(code.bytes == 1 && z_.padding_h == 0 && z_.padding_w == 0 &&
                  z_.values() % code.values() == 0),
        items_(z_, code, z_.groups * layout_->blocks(), key.threads),
        run_(run_length(items_, code)),
        slots_(std::min<std::int64_t>(key.threads, items_.count())) {}

  void run(const CpuContext& context, const Operands& at) override {
    const std::int64_t bytes = (in_place_ ? 0 : items_.n.largest() * frame_bytes()) + kOverread;
    const SlotScratch& own = context.slot_scratch(slots_, static_cast<std::size_t>(bytes));
    for_each_slot(context, slots_, items_.count(), [&](std::int64_t slot, const auto& each_piece) {
      each_piece([&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t item = begin; item < end; ++item) run_item(at, item, own.as<std::byte>(slot));
      });
    });
  }
  std::shared_ptr<const kernels::Int8Layout> int8_layout() const override { return layout_; }

 private:
  /// Where an item finds x: the first tap of its first pixel, and the distances from there, in bytes.
  struct Source {
    const std::byte* x;
    std::int64_t image, row, pixel;
  };
  struct Range {
    std::int64_t begin, end;
    std::int64_t size() const { return end - begin; }
  };
  static Range part_of(const Cut& cut, std::int64_t part) { return {cut.begin(part), cut.begin(part + 1)}; }

  std::int64_t frame_bytes() const {
    return z_.frame_rows(items_.p.largest()) * z_.frame_columns(items_.q.largest()) * z_.c * code_.bytes;
  }

  void run_item(const Operands& at, std::int64_t item, std::byte* frame) const {
    const Range blocks = part_of(items_.blocks, item % items_.blocks.parts);
    item /= items_.blocks.parts;
    const Range q = part_of(items_.q, item % items_.q.parts);
    item /= items_.q.parts;
    const Range p = part_of(items_.p, item % items_.p.parts), n = part_of(items_.n, item / items_.p.parts);
    const auto* const x = static_cast<const std::uint8_t*>(at.first);
    Source source{};
    if (in_place_) {
      const std::int64_t first = (n.begin * z_.h + p.begin * z_.stride_h) * z_.w + q.begin * z_.stride_w;
      source = {reinterpret_cast<const std::byte*>(x + first * z_.c), z_.h * z_.w * z_.c, z_.w * z_.c, z_.c};
    } else {
      const std::int64_t pixel = z_.c * code_.bytes, row = z_.frame_columns(q.size()) * pixel;
      source = {frame, z_.frame_rows(p.size()) * row, row, pixel};
      const auto value = static_cast<std::uint8_t>(at.int8->x_zero);
      if (code_.bytes == 1)
        fill_frames(x, n, p, q, value, reinterpret_cast<std::uint8_t*>(frame));
      else
        fill_frames(x, n, p, q, value, reinterpret_cast<std::int16_t*>(frame));
    }
    for (std::int64_t block = blocks.begin; block < blocks.end; ++block)
      run_block(at, source, n, p, q, block / layout_->blocks(), block % layout_->blocks());
  }

  /// Copies what lies under pixels of y, with `zero` outside of x.
  template <class T>
  void fill_frames(const std::uint8_t* x, Range n, Range p, Range q, std::uint8_t zero, T* to) const {
    const std::int64_t top = z_.row(p.begin, 0), left = z_.column(q.begin, 0), rows = z_.frame_rows(p.size()),
                       columns = z_.frame_columns(q.size());
    // Columns before x, then in it.
    const std::int64_t before = std::clamp<std::int64_t>(-left, 0, columns),
                       inside = std::clamp<std::int64_t>(z_.w - left - before, 0, columns - before);
    vectorize([&] {
      for (std::int64_t image = n.begin; image < n.end; ++image) {
        for (std::int64_t row = top; row < top + rows; ++row, to += columns * z_.c) {
          if (row < 0 || row >= z_.h) {
            std::fill_n(to, columns * z_.c, T{zero});
            continue;
          }
          const std::uint8_t* const from = x + ((image * z_.h + row) * z_.w + left + before) * z_.c;
          T* const into = to + before * z_.c;
          const std::int64_t some = inside * z_.c;
          std::fill(to, into, T{zero});
          for (std::int64_t i = 0; i < some; ++i) into[i] = from[i];
          std::fill(into + some, to + columns * z_.c, T{zero});
        }
      }
    });
  }

  void run_block(const Operands& at, const Source& source, Range n, Range p, Range q, std::int64_t group,
                 std::int64_t block) const {
    const Int8Operands& step = *at.int8;
    const std::int64_t lanes = layout_->lanes(block), first = block * layout_->block(),
                       k = group * z_.group_k() + first, channels = std::min(lanes, z_.group_k() - first);
    alignas(64) std::int32_t bias[kMostLanes] = {};
    alignas(64) float multiplier[kMostLanes] = {};
    std::copy_n(static_cast<const std::int32_t*>(at.bias) + k, channels, bias);
    std::copy_n(step.multiplier + k, channels, multiplier);
    const int8_tiles::Finish finish{.bias = bias,
                                    .multiplier = multiplier,
                                    .channels = channels,
                                    .next = z_.k,
                                    .rounds = rounds_,
                                    .rounding = step.rounding,
                                    .residual_scale = step.residual_scale,
                                    .residual_zero = step.residual_zero};
    const std::byte* const w = static_cast<const std::byte*>(at.second) + layout_->offset(group, block);
    int8_tiles::Tile tile{.run = {},
                          .w = w,
                          .step = z_.stride_w * source.pixel,
                          .rows = z_.r,
                          .row_step = z_.dilation_h * source.row,
                          .pieces = z_.pieces(),
                          .piece_step = z_.dilation_w * source.pixel,
                          .words = layout_->words(),
                          .ahead = 2 * run_ * z_.stride_w * source.pixel,
                          .finish = &finish};
    const auto compute = code_.tiles[(lanes / kLanes - 1) * code_.pixels + run_ - 1];
    const std::int64_t channel = group * z_.group_c() * code_.bytes,
                       of_y = rounds_ ? 1 : static_cast<std::int64_t>(sizeof(float));
    // Where padding adds nothing, rows of the filter that lie on it, for both runs, are left out. Rows of
    // different images alternate, so that there are such tiles.
    Range taps{z_.r, 0};
    int filled = 0;  // runs of the tile
    const auto compute_tile = [&] {
      const std::int64_t skipped = taps.begin * tile.row_step;
      tile.rows = taps.size();
      tile.w = w + taps.begin * z_.pieces() * tile.words * lanes * 4;
      for (int8_tiles::Run& run : tile.run) run.x += skipped;
      compute(tile);
      taps = {z_.r, 0}, filled = 0;
    };
    for (std::int64_t row = 0; row < p.size(); ++row) {
      const Range inside = step.x_zero == 0 ? taps_inside(p.begin + row) : Range{0, z_.r};
      for (std::int64_t image = 0; image < n.size(); ++image) {
        const std::byte* const x = source.x + image * source.image + row * z_.stride_h * source.row + channel;
        const std::int64_t y = (((n.begin + image) * z_.p + p.begin + row) * z_.q + q.begin) * z_.k + k;
        for (std::int64_t begin = 0; begin < q.size(); begin += run_) {
          const std::int64_t column = std::min(begin, q.size() - run_);  // the last one of a row ends with it
          const std::int64_t to = y + column * z_.k;
          tile.run[filled] = {
              .x = x + column * tile.step,
              .y = static_cast<std::byte*>(at.out) + to * of_y,
              .residual = at.residual ? static_cast<const std::uint8_t*>(at.residual) + to : nullptr,
              .first = begin - column};
          taps = {std::min(taps.begin, inside.begin), std::max(taps.end, inside.end)};
          if (++filled == 2) compute_tile();
        }
      }
    }
    if (filled == 0) return;
    tile.run[1] = tile.run[0];
    tile.run[1].first = run_;  // nothing is left for it
    compute_tile();
  }

  /// The rows of the filter that meet x at a row of y.
  Range taps_inside(std::int64_t row) const {
    Range taps{0, z_.r};
    while (taps.size() > 0 && z_.row(row, taps.begin) < 0) ++taps.begin;
    while (taps.size() > 0 && z_.row(row, taps.end - 1) >= z_.h) --taps.end;
    return taps;
  }

  static constexpr std::int64_t kMostLanes = 2 * kLanes;

  Sizes z_;
  const Code& code_;
  bool rounds_;
  std::shared_ptr<const TileLayout> layout_;
  bool in_place_;
  Items items_;
  std::int64_t run_;  ///< pixels of a run
  std::int64_t slots_;
};

template <const Code& kCode> MadePrimitive make(const PrimitiveKey& key) {
  return {std::make_unique<Int8Tiles>(key, kCode), std::string(key.by->name)};
}
bool fits_any(const PrimitiveKey&) {
  return true;
}

}  // namespace

#if defined(__x86_64__) && defined(__GNUC__)
extern const Implementation kInt8Avx512Vnni{.name = "avx512_vnni",
                                            .fuses = {.residual = true},
                                            .fits = [](const PrimitiveKey&) { return has_avx512_vnni(); },
                                            .make = make<int8_tiles::avx512_vnni::kCode>};
extern const Implementation kInt8Avx2{.name = "avx2",
                                      .fuses = {.residual = true},
                                      .fits = [](const PrimitiveKey&) { return has_avx2(); },
                                      .make = make<int8_tiles::avx2::kCode>};
#endif
extern const Implementation kInt8Plain{
    .name = "plain", .fuses = {.residual = true}, .fits = fits_any, .make = make<int8_tiles::plain::kCode>};

}  // namespace athanor::cpu
