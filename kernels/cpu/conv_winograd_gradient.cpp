#include <algorithm>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/panel_product.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/winograd.h"
#include "kernels/cpu/winograd_fetch.h"
#include "kernels/scratch.h"

// The gradient of the weights by Winograd's algorithm, which conv_winograd.cpp describes. Here dy acts as the
// filter: the products sum over tiles.

namespace athanor::cpu {

extern const Implementation kConvWinograd;

namespace {

using namespace winograd;

constexpr std::int64_t kGradientRows = 16;       // output channels per piece of the gradient
constexpr std::int64_t kAddends = 256;           // tiles per partial sum: small sums have less rounding error
constexpr std::int64_t kFactorFloats = 1 << 20;  // of both factors of the products of a block, at all points
constexpr std::int64_t kSmallGradient = 32 * 32;         // C K of filters whose gradient fits in L2 cache
constexpr std::int64_t kSmallBlock = kPoints * 48 * 32;  // floats of both factors beside it
constexpr std::int64_t kChunkSums = 1 << 20;             // floats of the sums of all chunks
constexpr std::int64_t kFewTiles = 32;                   // up to it by_pieces() was faster on a Zen 3

/// Of x and dy.
struct Geometry {
  Images in, out;
  std::int64_t pad_h, pad_w;

  explicit Geometry(const PrimitiveKey& key) : in(), out(), pad_h(), pad_w() {
    const auto [n, h, w, c, k, r, s, p, q, sh, sw, ph, pw, dh, dw, g] = key.sizes;
    in = {n, h, w, c}, out = {n, p, q, k}, pad_h = ph, pad_w = pw;
  }
};

/// dw (+)= the sums over all tiles of dy^T x at the points, in pieces of 16 output channels and a panel of
/// input channels. In what order depends on the sizes, but not on the number of threads.
template <class T, class W> class BackwardWeights {
 public:
  BackwardWeights(const CpuContext& context, const PrimitiveKey& key, const T* x, const T* dy, W* dw)
      : context_(context),
        z_(key),
        tiles_(z_.out),
        x_(x),
        dy_(dy),
        accumulate_(key.fused.accumulate),
        dw_(dw) {}

  void run() const {
    if (small_gradient_) return by_chunks();
    const Scratch scratch =
        context_.scratch(static_cast<std::size_t>(inputs_ + outputs_ + room_) * sizeof(float));
    const Points v{scratch.as<float>(), block_, width_}, g{v.data + inputs_, block_, k_};
    float* const sums = g.data + outputs_;
    for (std::int64_t first = 0; first < tiles_.count; first += block_) {
      const Block block{first, std::min(block_, tiles_.count - first), first > 0};
      parallel_for(
          context_, block.count, std::max<std::int64_t>(1, kGrain / (kPoints * (c_ + k_))),
          [&](std::int64_t begin, std::int64_t end) { read(first + begin, end - begin, v, g, begin); });
      if (few_tiles_) return by_pieces(block, v, g, sums);
      by_points(block, v, g, sums);
    }
    write_all(sums);
  }

 private:
  struct Block {
    std::int64_t first, count;
    bool accumulate;  // to the sums of tiles before it
  };

  void read(std::int64_t first, std::int64_t count, const Points& v, const Points& g,
            std::int64_t row) const {
    transforms<T>().inputs_to_points(z_.in, x_, tiles_, z_.pad_h, z_.pad_w, first, count, v, row);
    transforms<T>().gradients_to_points(z_.out, dy_, tiles_, first, count, g, row);
  }
  // The gradient at the points fits in a core's L2 cache beside both factors of a few tiles, so that each
  // thread transforms and multiplies these at once. Each chunk of tiles has its own sums.
  void by_chunks() const {
    const std::int64_t block = kSmallBlock / (kPoints * (c_ + k_)) / 4 * 4, gradient = pieces_ * piece_;
    // Few tiles still give eight threads work; many have few sums to add up.
    const std::int64_t wanted =
                           std::max(std::min<std::int64_t>(8, tiles_.count / 16), tiles_.count / (4 * block)),
                       chunks = std::clamp<std::int64_t>(wanted, 1, kChunkSums / gradient),
                       slots = std::min<std::int64_t>(context_.threads(), chunks);
    const std::int64_t inputs = Points::floats(block, width_, panels_), outputs = Points::floats(block, k_);
    const Scratch scratch = context_.scratch(static_cast<std::size_t>(chunks * gradient) * sizeof(float));
    const SlotScratch& own =
        context_.slot_scratch(slots, static_cast<std::size_t>(inputs + outputs) * sizeof(float));
    float* const sums = scratch.as<float>();
    for_each_slot(context_, slots, chunks, [&](std::int64_t slot, const auto& each_piece) {
      const Points v{own.as<float>(slot), block, width_}, g{v.data + inputs, block, k_};
      each_piece([&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          sum_tiles(i * tiles_.count / chunks, (i + 1) * tiles_.count / chunks, v, g, sums + i * gradient);
      });
    });
    parallel_for(context_, gradient, kGrain / chunks, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t chunk = 1; chunk < chunks; ++chunk) {
        const float* const more = sums + chunk * gradient;
        for (std::int64_t i = begin; i < end; ++i) sums[i] += more[i];
      }
    });
    write_all(sums);
  }
  // All pieces of the sums of tiles [begin, end), as many at a time as v and g have rows. Products keep a
  // core busy and memory idle, so the next tiles are fetched meanwhile.
  void sum_tiles(std::int64_t begin, std::int64_t end, const Points& v, const Points& g, float* sums) const {
    const std::int64_t block = v.rows, products = kPoints * pieces_;
    for (std::int64_t first = begin; first < end; first += block) {
      const Block tiles{first, std::min(block, end - first), first > begin};
      read(first, tiles.count, v, g, 0);
      const std::int64_t next = first + tiles.count;
      const Upcoming x = upcoming_inputs(z_.in, x_, tiles_, z_.pad_h, next, block, products),
                     dy = upcoming_outputs(z_.out, dy_, tiles_, next, block, products);
      for (std::int64_t i = 0; i < products; ++i) {
        x.fetch(i), dy.fetch(i);
        add_product(i % pieces_, i / pieces_, tiles, v, g, sums + i % pieces_ * piece_);
      }
    }
  }
  // All threads have transformed a block of tiles. Both factors of all pieces at a point fit in a core's L2
  // cache.
  void by_points(const Block& block, const Points& v, const Points& g, float* sums) const {
    const std::int64_t products = kPoints * pieces_;
    parallel_for(context_, products, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        add_product(i % pieces_, i / pieces_, block, v, g, sums + i % pieces_ * piece_);
    });
  }
  // The gradient at the points is larger than both factors: a piece is finished while it is in cache.
  void by_pieces(const Block& all, const Points& v, const Points& g, float* sums) const {
    for_each_slot(context_, slots_, pieces_, [&](std::int64_t slot, const auto& each_piece) {
      float* const mine = sums + slot * piece_;
      each_piece([&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t piece = begin; piece < end; ++piece) {
          for (std::int64_t p = 0; p < kPoints; ++p) add_product(piece, p, all, v, g, mine);
          write(piece, mine);
        }
      });
    });
  }

  void add_product(std::int64_t piece, std::int64_t point, const Block& block, const Points& v,
                   const Points& g, float* sums) const {
    const std::int64_t panel = piece / rows_, row = piece % rows_ * kGradientRows;
    const Points m{sums, kGradientRows, width_};
    for (std::int64_t t = 0; t < block.count; t += kAddends)
      multiply_panel({.x = g.at(0, point) + t * k_ + row,
                      .row = 1,
                      .next = k_,
                      .w = v.at(panel, point) + t * width_,
                      .depth = std::min(kAddends, block.count - t),
                      .out = m.at(0, point),
                      .width = width_,
                      .accumulate = block.accumulate || t > 0,
                      .fetch_ahead = false},
                     kGradientRows, c_ - panel * kWidth);
  }
  void write(std::int64_t piece, float* sums) const {
    transforms<W>().write_gradient(c_, piece % rows_ * kGradientRows, kGradientRows, piece / rows_,
                                   {sums, kGradientRows, width_}, accumulate_, dw_);
  }

  void write_all(float* sums) const {
    parallel_for(context_, pieces_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) write(i, sums + i * piece_);
    });
  }

  const CpuContext& context_;
  const Geometry z_;
  const Tiles tiles_;
  const T *x_, *dy_;
  bool accumulate_;
  W* dw_;
  const std::int64_t c_ = z_.in.c, k_ = z_.out.c;
  const std::int64_t width_ = panel_width(c_), panels_ = quotient_up(c_, kWidth), rows_ = k_ / kGradientRows,
                     pieces_ = panels_ * rows_;
  // The size does not depend on the number of threads: sums are added in block order.
  const std::int64_t block_ = std::min(
      round_up(tiles_.count, 4), std::max<std::int64_t>(64, kFactorFloats / (kPoints * (c_ + k_)) / 4 * 4));
  const std::int64_t slots_ = std::min<std::int64_t>(context_.threads(), pieces_);
  const bool small_gradient_ = c_ * k_ <= kSmallGradient && tiles_.count > kFewTiles;
  const bool few_tiles_ = tiles_.count <= kFewTiles && pieces_ >= context_.threads();
  const std::int64_t inputs_ = Points::floats(block_, width_, panels_), outputs_ = Points::floats(block_, k_),
                     piece_ = Points::floats(kGradientRows, width_),
                     room_ = (few_tiles_ ? slots_ : pieces_) * piece_;
};

void run(const CpuContext& context, const PrimitiveKey& key, const Operands& at) {
  dispatch_floating(key.in, "conv2d", [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      const auto to = [&]<class W>(W* dw) {
        BackwardWeights<T, W>(context, key, static_cast<const T*>(at.first), static_cast<const T*>(at.second),
                              dw)
            .run();
      };
      if (key.out == DType::f32) return to(static_cast<float*>(at.out));
      to(static_cast<T*>(at.out));
    }
  });
}

}  // namespace

extern const Implementation kConvWinogradWeights{
    .name = "winograd",
    .fuses = {.accumulate = true},
    .fits = [](const PrimitiveKey& key) { return kConvWinograd.fits(key); },
    .make = [](const PrimitiveKey& key) { return made_of(key, run); },
    .needs = [](const PrimitiveKey& key) { return kConvWinograd.needs(key); }};

}  // namespace athanor::cpu
