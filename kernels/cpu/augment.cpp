#include "kernels/augment.h"

#include <algorithm>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"

namespace athanor::kernels {
namespace {

/// One row of an image, read in whole pixels: C is 1, 3 or (0) any number known at run time.
template <int C, class T> struct RowLookup {
  const T* table;  // [C, 256]
  std::int64_t channels;

  void copy(const std::uint8_t* from, std::int64_t step, std::int64_t pixels, T* to) const {
    const std::int64_t n = C ? C : channels;
    if (step == n) {  // dense: rows of one channel vectorise
      for (std::int64_t x = 0; x < pixels; ++x) {
        for (std::int64_t c = 0; c < n; ++c) to[x * n + c] = table[c * 256 + from[x * n + c]];
      }
      return;
    }
    for (std::int64_t x = 0; x < pixels; ++x) {
      for (std::int64_t c = 0; c < n; ++c) to[x * n + c] = table[c * 256 + from[x * step + c]];
    }
  }

  /// Like copy(), with a colour transform.
  void recolour(const ColourMatrix& colour, const std::uint8_t* from, std::int64_t step, std::int64_t pixels,
                T* to) const {
    for (std::int64_t x = 0; x < pixels; ++x) {
      for (std::int64_t c = 0; c < 3; ++c) to[x * 3 + c] = table[c * 256 + colour(from + x * step, c)];
    }
  }

  void pixel(const std::uint8_t* from, T* to) const {
    const std::int64_t n = C ? C : channels;
    for (std::int64_t c = 0; c < n; ++c) to[c] = table[c * 256 + (from ? from[c] : kOutside<T>)];
  }
};

struct Image {
  std::int64_t height, width, channels;
};

/// A whole row outside the image, or the outside part of one.
template <int C, class T>
void transform(const Augment& augment, const AugmentPlan& plan, const Image& size, const std::uint8_t* in,
               const RowLookup<C, T>& lookup, T* out) {
  const std::int64_t row = size.width * size.channels;
  // Output columns [first, last) come from inside the image; the others need the padding.
  const std::int64_t shift = plan.flip ? -plan.dx : plan.dx;
  const std::int64_t first = std::clamp<std::int64_t>(-shift, 0, size.width);
  const std::int64_t last = std::clamp<std::int64_t>(size.width - shift, first, size.width);
  const std::int64_t step = plan.flip ? -size.channels : size.channels;
  const auto column = [&](std::int64_t x) { return (plan.flip ? size.width - 1 - x : x) + plan.dx; };

  for (std::int64_t y = 0; y < size.height; ++y) {
    T* to = out + y * row;
    const std::int64_t upright = plan.vertical_flip ? size.height - 1 - y : y;
    const std::int64_t source = padded_index(upright + plan.dy, size.height, augment.padding);
    const std::uint8_t* from = source < 0 ? nullptr : in + source * row;
    const auto edge = [&](std::int64_t x) {
      const std::int64_t at = padded_index(column(x), size.width, augment.padding);
      if (plan.recolours && from && at >= 0) {
        lookup.recolour(plan.colour, from + at * size.channels, size.channels, 1, to + x * size.channels);
      } else {
        lookup.pixel(from && at >= 0 ? from + at * size.channels : nullptr, to + x * size.channels);
      }
    };
    const std::int64_t inner_first = from ? first : size.width, inner_last = from ? last : size.width;
    for (std::int64_t x = 0; x < inner_first; ++x) edge(x);
    if (inner_first < inner_last && plan.recolours) {
      lookup.recolour(plan.colour, from + column(inner_first) * size.channels, step, inner_last - inner_first,
                      to + inner_first * size.channels);
    } else if (inner_first < inner_last) {
      lookup.copy(from + column(inner_first) * size.channels, step, inner_last - inner_first,
                  to + inner_first * size.channels);
    }
    for (std::int64_t x = inner_last; x < size.width; ++x) edge(x);
  }
}

/// The plan's box, scaled to the size of the image.
template <int C, class T>
void rescale(const AugmentPlan& plan, const Image& size, const std::uint8_t* in,
             const RowLookup<C, T>& lookup, T* out) {
  const std::int64_t channels = C ? C : size.channels;
  for (std::int64_t y = 0; y < size.height; ++y) {
    const Tap row(plan.vertical_flip ? size.height - 1 - y : y, plan.dy, plan.box_height, size.height);
    for (std::int64_t i = 0; i < size.width; ++i, out += channels) {
      const Tap column(plan.flip ? size.width - 1 - i : i, plan.dx, plan.box_width, size.width);
      if constexpr (std::is_same_v<T, std::uint8_t>) {
        lookup.pixel(in + (row.nearest * size.width + column.nearest) * channels, out);
      } else if (plan.recolours) {
        std::uint8_t pixel[3];
        for (int c = 0; c < 3; ++c) pixel[c] = between(in, size.width, 3, row, column, c);
        lookup.recolour(plan.colour, pixel, 0, 1, out);
      } else {
        for (std::int64_t c = 0; c < channels; ++c)
          out[c] = lookup.table[c * 256 + between(in, size.width, channels, row, column, c)];
      }
    }
  }
}

template <class T> void blank(const AugmentPlan& plan, const Image& size, T* out) {
  for (std::int64_t y = plan.blank_y; y < plan.blank_y + plan.blank_height; ++y) {
    T* to = out + (y * size.width + plan.blank_x) * size.channels;
    std::fill_n(to, plan.blank_width * size.channels, T(0.0f));
  }
}

}  // namespace

void augment(CpuContext& context, const Augment& augment, const AugmentKey& key, const Tensor& images,
             const Tensor& rows, const Tensor& samples, const Tensor& table, Out y) {
  const Image size{y.shape()[1], y.shape()[2], y.shape()[3]};
  const std::int64_t numel = size.height * size.width * size.channels;
  const std::uint8_t* in = images.data<std::uint8_t>();
  const std::int64_t* row_of = rows.defined() ? rows.data<std::int64_t>() : nullptr;
  const std::int64_t* sample_of = samples.data<std::int64_t>();
  const auto run_as = [&]<class T>() {
    T* out = y.data<T>();
    const auto run = [&]<int C>() {
      const RowLookup<C, T> lookup{table.data<T>(), size.channels};
      cpu::for_each_task<true>(context, y.shape()[0], cpu::grain_of(numel), [&](std::int64_t n) {
        const AugmentPlan plan = plan_augment(augment, size.height, size.width, key, sample_of[n]);
        const std::uint8_t* image = in + (row_of ? row_of[n] : n) * numel;
        if (plan.scales) {
          rescale(plan, size, image, lookup, out + n * numel);
        } else {
          transform(augment, plan, size, image, lookup, out + n * numel);
        }
        blank(plan, size, out + n * numel);
      });
    };
    if (size.channels == 1) {
      run.template operator()<1>();
    } else if (size.channels == 3) {
      run.template operator()<3>();
    } else {
      run.template operator()<0>();
    }
  };
  if (y.dtype() == DType::u8) return run_as.template operator()<std::uint8_t>();
  dispatch_floating(y.dtype(), "augment", run_as);
}

void augment_points(CpuContext&, const Augment& augment, const AugmentKey& key, std::int64_t height,
                    std::int64_t width, const Tensor& samples, const Tensor& x, Out y) {
  const std::int64_t each = x.shape()[1], numbers = x.shape()[2];
  const float* from = x.data<float>();
  float* to = y.data<float>();
  for (std::int64_t n = 0; n < x.shape()[0]; ++n) {
    const AugmentPlan plan = plan_augment(augment, height, width, key, samples.data<std::int64_t>()[n]);
    for (std::int64_t i = 0; i < each; ++i, from += numbers, to += numbers) {
      (numbers == 4 ? move_box : move_point)(plan, height, width, from, to);
    }
  }
}

}  // namespace athanor::kernels
