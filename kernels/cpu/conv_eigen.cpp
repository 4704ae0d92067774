#include <algorithm>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/epilogue.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/parallel.h"
#include "kernels/scratch.h"

// Convolution as a matrix product. A tile is a run of output pixels; its patches, one row of R S C values per
// pixel ("im2col"), are multiplied by the filters. Tiles stay in a core's cache between copy and product, so
// the whole patch matrix never exists in memory. The copy widens half types.

namespace athanor::cpu {
namespace {

constexpr std::int64_t kTileElements = 64 * 1024;  // of patches

/// Shared by the three passes: sizes of one group's product and of the tiles.
struct Tiling {
  std::int64_t depth;      ///< R S C / groups: columns of a patch matrix
  std::int64_t pixels;     ///< output pixels of one image
  std::int64_t tile;       ///< output pixels of one tile
  std::int64_t per_image;  ///< tiles of one image

  explicit Tiling(const ConvSize& z)
      : depth(z.r * z.s * z.group_c()),
        pixels(z.p * z.q),
        tile(std::clamp<std::int64_t>(kTileElements / std::max<std::int64_t>(1, depth), 16, 512)) {
    tile = std::min(tile, std::max<std::int64_t>(1, pixels));
    per_image = (pixels + tile - 1) / tile;
  }
};

std::int64_t slots_for(const CpuContext& context, const ConvSize& z, std::int64_t units) {
  const std::int64_t worth = z.work() / kGrain + 1;
  return std::max<std::int64_t>(1, std::min({std::int64_t{context.threads()}, units, worth}));
}

// Calls f(offset in the patch, offset of the pixel in the image, or -1 in the padding) for every tap under
// one output pixel.
template <class F> void for_each_tap(const ConvSize& z, std::int64_t pixel, const F& f) {
  const std::int64_t p = pixel / z.q, q = pixel % z.q, gc = z.group_c();
  for (std::int64_t r = 0; r < z.r; ++r) {
    const std::int64_t row = z.row(p, r);
    for (std::int64_t s = 0; s < z.s; ++s) {
      const std::int64_t column = z.column(q, s);
      const bool inside = row >= 0 && row < z.h && column >= 0 && column < z.w;
      f((r * z.s + s) * gc, inside ? (row * z.w + column) * z.c : -1);
    }
  }
}

template <class T, class A>
void gather(const ConvSize& z, const T* image, std::int64_t first, std::int64_t count, A* patches) {
  const std::int64_t gc = z.group_c(), depth = z.r * z.s * gc;
  for (std::int64_t i = 0; i < count; ++i) {
    for_each_tap(z, first + i, [&](std::int64_t at, std::int64_t from) {
      A* to = patches + i * depth + at;
      if (from < 0) {
        for (std::int64_t c = 0; c < gc; ++c) to[c] = 0;
      } else {
        for (std::int64_t c = 0; c < gc; ++c) to[c] = A(image[from + c]);
      }
    });
  }
}

// The reverse: adds every patch value to its source pixel.
template <class A>
void scatter_add(const ConvSize& z, const A* patches, std::int64_t first, std::int64_t count, A* image) {
  const std::int64_t gc = z.group_c(), depth = z.r * z.s * gc;
  for (std::int64_t i = 0; i < count; ++i) {
    for_each_tap(z, first + i, [&](std::int64_t at, std::int64_t to) {
      const A* from = patches + i * depth + at;
      if (to < 0) return;
      for (std::int64_t c = 0; c < gc; ++c) image[to + c] += from[c];
    });
  }
}

// n values in the accumulation type: in place, or converted into `space`.
template <class T, class A> const A* widened(const T* values, std::int64_t n, A* space) {
  if constexpr (std::is_same_v<T, A>) {
    return values;
  } else {
    for (std::int64_t i = 0; i < n; ++i) space[i] = A(values[i]);
    return space;
  }
}

template <class T> constexpr bool kHalf = !std::is_same_v<T, Accumulate<T>>;

template <class T>
void forward(const CpuContext& context, const ConvSize& z, bool relu, const T* x, const T* w, const T* bias,
             T* y) {
  using A = Accumulate<T>;
  const Tiling tiling(z);
  const std::int64_t depth = tiling.depth, gc = z.group_c(), gk = z.group_k(), tile = tiling.tile;
  const std::int64_t units = z.n * tiling.per_image, slots = slots_for(context, z, units);
  const std::int64_t filter = kHalf<T> ? z.k * depth : 0, per_slot = tile * (depth + gk);
  const Scratch scratch = context.scratch(static_cast<std::size_t>(filter + slots * per_slot) * sizeof(A));
  const A* weights = widened(w, filter == 0 ? 0 : z.k * depth, scratch.as<A>());
  dispatch_fused(relu, [&]<class Op>() {
    for_each_slot(context, slots, units, [&](std::int64_t slot, const auto& each_piece) {
      A* const patches = scratch.as<A>() + filter + slot * per_slot;
      A* const sums = patches + tile * depth;
      each_piece([&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t unit = begin; unit < end; ++unit) {
          const std::int64_t image = unit / tiling.per_image, first = unit % tiling.per_image * tile;
          const std::int64_t count = std::min(tile, tiling.pixels - first);
          for (std::int64_t group = 0; group < z.groups; ++group) {
            vectorize_if<kFastType<T>>(
                [&] { gather(z, x + image * z.h * z.w * z.c + group * gc, first, count, patches); });
            gemm_eigen<A>(context, 1, {count, gk, depth}, {patches, depth, 1},
                          {weights + group * gk * depth, 1, depth}, sums, gk, false);
            vectorize_if<kFastType<T>>([&] {
              for (std::int64_t i = 0; i < count; ++i) {
                T* to = y + (image * tiling.pixels + first + i) * z.k + group * gk;
                const T* offset = bias ? bias + group * gk : nullptr;
                for (std::int64_t k = 0; k < gk; ++k) {
                  const A sum = sums[i * gk + k];
                  to[k] = T(Op::forward(offset ? sum + A(offset[k]) : sum));
                }
              }
            });
          }
        }
      });
    });
  });
}

template <class T>
void backward_data(const CpuContext& context, const ConvSize& z, const T* dy, const T* w, T* dx) {
  using A = Accumulate<T>;
  const Tiling tiling(z);
  const std::int64_t depth = tiling.depth, gc = z.group_c(), gk = z.group_k(), tile = tiling.tile;
  const std::int64_t slots = slots_for(context, z, z.n), pixels = z.h * z.w * z.c;
  const std::int64_t filter = kHalf<T> ? z.k * depth : 0;
  const std::int64_t per_slot = tile * (depth + gk) + (kHalf<T> ? pixels : 0);
  const Scratch scratch = context.scratch(static_cast<std::size_t>(filter + slots * per_slot) * sizeof(A));
  const A* weights = widened(w, filter == 0 ? 0 : z.k * depth, scratch.as<A>());
  for_each_slot(context, slots, z.n, [&](std::int64_t slot, const auto& each_piece) {
    A* const patches = scratch.as<A>() + filter + slot * per_slot;
    A* const gradient = patches + tile * depth;
    each_piece([&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t image = begin; image < end; ++image) {
        A* sums = gradient + tile * gk;
        if constexpr (!kHalf<T>) sums = dx + image * pixels;
        std::fill(sums, sums + pixels, A(0));
        for (std::int64_t first = 0; first < tiling.pixels; first += tile) {
          const std::int64_t count = std::min(tile, tiling.pixels - first);
          for (std::int64_t group = 0; group < z.groups; ++group) {
            const T* from = dy + (image * tiling.pixels + first) * z.k + group * gk;
            vectorize_if<kFastType<T>>([&] {
              for (std::int64_t i = 0; i < count; ++i)
                for (std::int64_t k = 0; k < gk; ++k) gradient[i * gk + k] = A(from[i * z.k + k]);
            });
            gemm_eigen<A>(context, 1, {count, depth, gk}, {gradient, gk, 1},
                          {weights + group * gk * depth, depth, 1}, patches, depth, false);
            vectorize_if<kFastType<T>>([&] { scatter_add(z, patches, first, count, sums + group * gc); });
          }
        }
        if constexpr (kHalf<T>) {
          vectorize_if<kFastType<T>>([&] {
            for (std::int64_t i = 0; i < pixels; ++i) dx[image * pixels + i] = T(sums[i]);
          });
        }
      }
    });
  });
}

template <class T, class W>
void backward_weights(const CpuContext& context, const ConvSize& z, const T* x, const T* dy, W* dw,
                      bool accumulate) {
  using A = Accumulate<T>;
  const Tiling tiling(z);
  const std::int64_t depth = tiling.depth, gc = z.group_c(), gk = z.group_k(), tile = tiling.tile;
  const std::int64_t units = z.n * tiling.per_image, slots = slots_for(context, z, units);
  const std::int64_t filter = z.k * depth, per_slot = filter + tile * (depth + gk);
  const Scratch scratch = context.scratch(static_cast<std::size_t>(slots * per_slot) * sizeof(A));
  // Each slot sums an equal share of the tiles; then the slots are added in order. So the bits depend on
  // their number alone.
  parallel_for(context, slots, 1, [&](std::int64_t first_slot, std::int64_t last_slot) {
    for (std::int64_t slot = first_slot; slot < last_slot; ++slot) {
      A* const sums = scratch.as<A>() + slot * per_slot;
      A* const patches = sums + filter;
      A* const gradient = patches + tile * depth;
      std::fill(sums, sums + filter, A(0));
      for (std::int64_t unit = slot * units / slots; unit < (slot + 1) * units / slots; ++unit) {
        const std::int64_t image = unit / tiling.per_image, first = unit % tiling.per_image * tile;
        const std::int64_t count = std::min(tile, tiling.pixels - first);
        for (std::int64_t group = 0; group < z.groups; ++group) {
          const T* from = dy + (image * tiling.pixels + first) * z.k + group * gk;
          vectorize_if<kFastType<T>>([&] {
            gather(z, x + image * z.h * z.w * z.c + group * gc, first, count, patches);
            for (std::int64_t i = 0; i < count; ++i)
              for (std::int64_t k = 0; k < gk; ++k) gradient[i * gk + k] = A(from[i * z.k + k]);
          });
          gemm_eigen<A>(context, 1, {gk, depth, count}, {gradient, 1, gk}, {patches, depth, 1},
                        sums + group * gk * depth, depth, true);
        }
      }
    }
  });
  parallel_for(context, filter, kGrain, [&](std::int64_t begin, std::int64_t end) {
    vectorize_if<kFastType<T>>([&] {
      for (std::int64_t i = begin; i < end; ++i) {
        A total = accumulate ? A(dw[i]) : A(0);
        for (std::int64_t slot = 0; slot < slots; ++slot) total += scratch.as<A>()[slot * per_slot + i];
        dw[i] = W(total);
      }
    });
  });
}

void run(const CpuContext& context, const PrimitiveKey& key, const Operands& at) {
  const ConvSize z = conv_size(key);
  dispatch_floating(key.in, "conv2d", [&]<class T>() {
    const T *const first = static_cast<const T*>(at.first), *const second = static_cast<const T*>(at.second);
    const auto weights_to = [&]<class W>(W* dw) {
      backward_weights(context, z, first, second, dw, key.fused.accumulate);
    };
    switch (key.op) {
      case PrimitiveKey::Op::conv_backward_data:
        return backward_data(context, z, first, second, static_cast<T*>(at.out));
      case PrimitiveKey::Op::conv_backward_weights:
        if (key.out == key.in) return weights_to(static_cast<T*>(at.out));
        return weights_to(static_cast<Accumulate<T>*>(at.out));
      default:
        return forward(context, z, key.fused.activation == Activation::relu, first, second,
                       static_cast<const T*>(at.bias), static_cast<T*>(at.out));
    }
  });
}

bool fits(const PrimitiveKey&) {
  return true;
}
MadePrimitive make(const PrimitiveKey& key) {
  return made_of(key, run);
}

}  // namespace

// The definition: every size and dtype. Only gradients of weights are added in the type of the sums.
extern const Implementation kConvEigen{
    .name = "reference", .fuses = {}, .activations = kOnlyRelu, .fits = fits, .make = make};
extern const Implementation kConvEigenWeights{
    .name = "reference", .fuses = {.accumulate = true}, .fits = fits, .make = make};

}  // namespace athanor::cpu
