#include "kernels/pool.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"
#include "kernels/dispatch_size.h"
#include "kernels/int8_ops.h"
#include "kernels/numbers.h"
#include "kernels/pool_ops.h"
#include "kernels/scratch.h"

// Channels are contiguous, so every loop runs over channels, in blocks of a fixed number of lanes. If C is
// not a multiple of a block (LeNet: 6 channels), the last block extends into the next pixel. Pixels are
// written in ascending order, so excess writes are overwritten, and excess reads are ignored. Only if the
// next pixel belongs to another thread, or does not exist, is the rest done channel by channel.

namespace athanor::kernels {
namespace {

using cpu::grain_of;
using cpu::parallel_for;
using cpu::vectorize_if;

// f64 and windows of more than 255 elements are rare: they get one vector width and two sizes of block.
template <class T, class I = void>
constexpr bool kCommon = cpu::kFastType<T> && !std::is_same_v<I, std::int32_t>;

/// Calls block(c, lanes) until [0, channels) is covered. `room`: number of elements from channel 0 on that
/// may be read and written. lanes is an integral_constant.
template <bool kFast, class F> void for_each_block(std::int64_t channels, std::int64_t room, const F& block) {
  std::int64_t c = 0;
  if constexpr (kFast) {
    for (; channels - c >= 64; c += 64) block(c, std::integral_constant<int, 64>());
  }
  for (; channels - c >= 16; c += 16) block(c, std::integral_constant<int, 16>());
  if (c == channels) return;
  if constexpr (kFast) {
    if (channels - c <= 8 && c + 8 <= room) return block(c, std::integral_constant<int, 8>());
  }
  if (c + 16 <= room) return block(c, std::integral_constant<int, 16>());
  for (; c < channels; ++c) block(c, std::integral_constant<int, 1>());
}

/// The loops' data about one axis, computed once per call.
struct Window {
  std::int64_t start, begin, end,
      count;         // of an output: first input, clipped first input, elements averaged over
  std::int64_t tap;  // index of `begin` in the window
};
struct Cover {
  std::int64_t begin, end;  // of an input: the outputs whose windows contain it
};
struct Table {
  Window* windows;
  Cover* covers;

  static std::size_t bytes(const PoolAxis& axis) {
    return static_cast<std::size_t>(axis.outputs) * sizeof(Window) +
           static_cast<std::size_t>(axis.inputs) * sizeof(Cover);
  }
  Table(const PoolAxis& axis, bool count_padding, std::byte* memory)
      : windows(reinterpret_cast<Window*>(memory)), covers(reinterpret_cast<Cover*>(windows + axis.outputs)) {
    for (std::int64_t i = 0; i < axis.outputs; ++i) {
      const std::int64_t start = axis.start(i), end = axis.end(i);
      const std::int64_t tap = first_tap(start, axis.dilation);
      const std::int64_t first = start + tap * axis.dilation, last = std::min(end, axis.inputs);
      windows[i] = {start, first, last, count_padding ? end - start : last - first, tap};
    }
    for (std::int64_t at = 0, begin = 0, end = 0; at < axis.inputs; ++at) {
      while (begin < axis.outputs && windows[begin].end <= at) ++begin;
      while (end < axis.outputs && windows[end].start <= at) ++end;
      covers[at] = {begin, std::max(begin, end)};
    }
  }
};

/// Both tables and the sizes, for one kernel call.
struct Plan {
  Scratch memory;
  Table h, w;
  std::int64_t H, W, P, Q, C;

  Plan(CpuContext& context, const PoolWindows& windows, std::int64_t channels)
      : memory(workspace(context, Table::bytes(windows.h) + Table::bytes(windows.w))),
        h(windows.h, windows.count_padding, memory.as<std::byte>()),
        w(windows.w, windows.count_padding, memory.as<std::byte>() + Table::bytes(windows.h)),
        H(windows.h.inputs),
        W(windows.w.inputs),
        P(windows.h.outputs),
        Q(windows.w.outputs),
        C(channels) {}
  static Scratch workspace(CpuContext& context, std::size_t bytes) {
    const AllocTag tag("workspace");
    return context.scratch(bytes);
  }
  /// Number of rows worth a second thread.
  std::int64_t grain() const { return grain_of(W * C); }
};

/// Calls output(lanes, rows, columns, image, to) for every block of channels of every output pixel: the
/// windows along both axes, the offset in x of the image's first pixel, and that in y of the result. A thread
/// gets at least `grain` rows.
template <bool kFast, class F>
void for_each_output(CpuContext& context, const Plan& plan, std::int64_t batch, std::int64_t grain,
                     const F& output) {
  const std::int64_t C = plan.C, image = plan.H * plan.W * C, all = batch * image;
  parallel_for(context, batch * plan.P, grain, [&](std::int64_t begin, std::int64_t end) {
    vectorize_if<kFast>([&] {
      for (std::int64_t row = begin; row < end; ++row) {
        const Window rows = plan.h.windows[row % plan.P];
        const std::int64_t base = row / plan.P * image;
        for (std::int64_t q = 0; q < plan.Q; ++q) {
          const Window columns = plan.w.windows[q];
          const std::int64_t last = base + ((rows.end - 1) * plan.W + columns.end - 1) * C,
                             to = (row * plan.Q + q) * C;
          for_each_block<kFast>(
              C, std::min(end * plan.Q * C - to, all - last),
              [&](std::int64_t c, auto lanes) { output(lanes, rows, columns, base + c, to + c); });
        }
      }
    });
  });
}

bool is_two_by_two(const PoolWindows& windows) {
  const auto plain = [](const PoolAxis& a) {
    return !a.adaptive && a.dilation == 1 && a.window == 2 && a.stride == 2 && a.padding == 0 &&
           2 * a.outputs <= a.inputs;
  };
  return plain(windows.h) && plain(windows.w);
}

/// One window is the whole image.
bool is_global(const Plan& plan) {
  const auto covers = [](const Table& table, std::int64_t inputs, std::int64_t outputs) {
    return outputs == 1 && table.windows[0].begin == 0 && table.windows[0].end == inputs;
  };
  return covers(plan.h, plan.H, plan.P) && covers(plan.w, plan.W, plan.Q);
}

// Max ------------------------------------------------------------------------------------------------------

template <int kLanes, class T, class I>
void max_of_four(const T* __restrict top, const T* __restrict bottom, std::int64_t channels, T* __restrict y,
                 I* __restrict index) {
  using A = ComputeType<T>;
  // As wide as values, in a short block: with bytes, g++ does not vectorise it.
  using Place = std::conditional_t<(kLanes > 16 && !std::is_void_v<I>), I, std::int32_t>;
  Place at[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    Best<A> best{A(top[l]), 0};
    best.offer(A(top[l + channels]), 1);
    best.offer(A(bottom[l]), 2);
    best.offer(A(bottom[l + channels]), 3);
    y[l] = T(best.value);
    at[l] = static_cast<Place>(best.at);
  }
  if constexpr (!std::is_void_v<I>) {
    for (int l = 0; l < kLanes; ++l) index[l] = static_cast<I>(at[l]);
  }
}

template <int kLanes, class T, class I>
void max_of_window(const T* __restrict image, const Plan& plan, const PoolWindows& windows,
                   const Window& rows, const Window& columns, T* __restrict y, I* __restrict index) {
  using A = ComputeType<T>;
  const std::int64_t down = windows.h.dilation, across = windows.w.dilation;
  const auto first = static_cast<std::int32_t>(rows.tap * windows.w.window + columns.tap);
  A value[kLanes];
  std::int32_t at[kLanes];
  const T* x = image + (rows.begin * plan.W + columns.begin) * plan.C;
  for (int l = 0; l < kLanes; ++l) value[l] = A(x[l]), at[l] = first;
  std::int32_t row = first;
  for (std::int64_t h = rows.begin; h < rows.end; h += down) {
    std::int32_t place = row;
    for (std::int64_t w = columns.begin; w < columns.end; w += across) {  // repeating the first is harmless
      x = image + (h * plan.W + w) * plan.C;
      for (int l = 0; l < kLanes; ++l) {
        Best<A> best{value[l], at[l]};
        best.offer(A(x[l]), place);
        value[l] = best.value;
        at[l] = best.at;
      }
      ++place;
    }
    row += static_cast<std::int32_t>(windows.w.window);
  }
  for (int l = 0; l < kLanes; ++l) y[l] = T(value[l]);
  if constexpr (!std::is_void_v<I>) {
    for (int l = 0; l < kLanes; ++l) index[l] = static_cast<I>(at[l]);
  }
}

template <class T, class I>
void run_max(CpuContext& context, const PoolWindows& windows, const Tensor& x, const Tensor& y, I* index) {
  const Plan plan(context, windows, x.dim(3));
  const bool four = is_two_by_two(windows);
  const T* in = x.data<T>();
  T* out = y.data<T>();
  for_each_output<kCommon<T, I>>(
      context, plan, x.dim(0), plan.grain(),
      [&](auto lanes, const Window& rows, const Window& columns, std::int64_t image, std::int64_t to) {
        I* places = index;
        if constexpr (!std::is_void_v<I>) places += to;
        if (four) {
          const T* top = in + image + (rows.begin * plan.W + columns.begin) * plan.C;
          max_of_four<lanes()>(top, top + plan.W * plan.C, plan.C, out + to, places);
        } else {
          max_of_window<lanes()>(in + image, plan, windows, rows, columns, out + to, places);
        }
      });
}

/// The contribution of n windows to one of their positions: dy if that position won, else 0. Uses a mask: g++
/// would make a branch for each lane of a short block, and winners are unpredictable.
template <class Bits, class I>
void spread(std::int64_t n, const Bits* __restrict dy, const I* __restrict won, I place,
            Bits* __restrict dx) {
  for (std::int64_t i = 0; i < n; ++i) {
    dx[i] = static_cast<Bits>(dy[i] & static_cast<Bits>(0 - static_cast<Bits>(won[i] == place)));
  }
}

/// One input row of 2 x 2 windows: each dy goes to one of two positions.
template <class Bits, class I>
void spread_row(const Bits* dy, const I* index, std::int64_t half, const Plan& plan, std::int64_t room,
                std::int64_t room_dy, Bits* dx) {
  const std::int64_t C = plan.C;
  for (std::int64_t w = 0; w < 2 * plan.Q; ++w) {
    const std::int64_t from = w / 2 * C, to = w * C;
    const I place = static_cast<I>(2 * half + w % 2);
    if (C >= 32) {
      spread(C, dy + from, index + from, place, dx + to);
    } else {
      for_each_block<kCommon<Bits, I>>(
          C, std::min(room - to, room_dy - from), [&](std::int64_t c, auto lanes) {
            spread<Bits, I>(lanes(), dy + from + c, index + from + c, place, dx + to + c);
          });
    }
  }
  std::fill(dx + 2 * plan.Q * C, dx + plan.W * C, Bits(0));
}

/// The backward pass of 2 x 2 windows. It moves elements without arithmetic, so it treats them as bits.
template <class Bits, class I>
void spread_windows(CpuContext& context, const Plan& plan, std::int64_t batch, const Bits* dy, const I* index,
                    Bits* dx) {
  const std::int64_t C = plan.C, image = plan.P * plan.Q * C;
  parallel_for(context, batch * plan.H, plan.grain(), [&](std::int64_t begin, std::int64_t end) {
    vectorize_if<kCommon<Bits, I>>([&] {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t n = row / plan.H, h = row % plan.H, from = (n * plan.P + h / 2) * plan.Q * C;
        Bits* to = dx + row * plan.W * C;
        if (h / 2 < plan.P) {
          spread_row(dy + from, index + from, h % 2, plan, (end - row) * plan.W * C, batch * image - from,
                     to);
        } else {
          std::fill(to, to + plan.W * C, Bits(0));
        }
      }
    });
  });
}

/// dx of one pixel: the sum of term(lane, gradient, offset of the window, p, q) over its windows.
template <int kLanes, class T, class Term>
void gather(const T* __restrict dy, const Plan& plan, const Cover& rows, const Cover& columns,
            T* __restrict dx, const Term& term) {
  using A = Accumulate<T>;
  A sum[kLanes] = {};
  for (std::int64_t p = rows.begin; p < rows.end; ++p) {
    for (std::int64_t q = columns.begin; q < columns.end; ++q) {
      const std::int64_t from = (p * plan.Q + q) * plan.C;
      const auto weigh = term(p, q, from);
      for (int l = 0; l < kLanes; ++l) sum[l] += weigh(l, A(dy[from + l]));
    }
  }
  for (int l = 0; l < kLanes; ++l) dx[l] = T(sum[l]);
}

/// Calls pixel(lanes, n, h, w, c) for every block of channels of every input pixel.
template <bool kFast, class F>
void for_each_input(CpuContext& context, const Plan& plan, std::int64_t batch, const F& pixel) {
  const std::int64_t C = plan.C;
  parallel_for(context, batch * plan.H, plan.grain(), [&](std::int64_t begin, std::int64_t end) {
    vectorize_if<kFast>([&] {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t n = row / plan.H, h = row % plan.H;
        for (std::int64_t w = 0; w < plan.W; ++w) {
          // The last window over this pixel is also read: it must leave as much room in dy.
          const std::int64_t p = plan.h.covers[h].end - 1, q = plan.w.covers[w].end - 1;
          const std::int64_t room_dy = ((batch - n) * plan.P * plan.Q - (p * plan.Q + q)) * C;
          for_each_block<kFast>(C, std::min((end * plan.W - row * plan.W - w) * C, room_dy),
                                [&](std::int64_t c, auto lanes) { pixel(lanes, n, h, w, c); });
        }
      }
    });
  });
}

template <class T, class I>
void run_max_backward(CpuContext& context, const PoolWindows& windows, const Tensor& dy, const Tensor& index,
                      const Tensor& dx) {
  const Plan plan(context, windows, dx.shape()[3]);
  const std::int64_t C = plan.C, batch = dx.shape()[0], image = plan.P * plan.Q * C;
  const T* gradients = dy.data<T>();
  const I* places = index.data<I>();
  T* out = dx.data<T>();
  using A = Accumulate<T>;
  for_each_input<kCommon<T, I>>(
      context, plan, batch, [&](auto lanes, std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
        const I* __restrict won = places + n * image + c;
        const auto term = [&](std::int64_t p, std::int64_t q, std::int64_t from) {
          const std::int64_t r = tap_at(h - plan.h.windows[p].start, windows.h.dilation);
          const std::int64_t s = tap_at(w - plan.w.windows[q].start, windows.w.dilation);
          const bool inside = r >= 0 && s >= 0;
          const I place = static_cast<I>(r * windows.w.window + s);
          return [=](int l, A g) { return inside && won[from + l] == place ? g : A(0); };
        };
        gather<lanes()>(gradients + n * image + c, plan, plan.h.covers[h], plan.w.covers[w],
                        out + ((n * plan.H + h) * plan.W + w) * C + c, term);
      });
}

/// The windows of a pool of 8-bit integers, from x to y.
PoolWindows windows_of(const Pool2dParams& params, const Tensor& x, const Tensor& y) {
  const auto axis = [&](int i) {
    return PoolAxis{x.dim(1 + i),      y.dim(1 + i), params.window[i],  params.stride[i],
                    params.padding[i], false,        params.dilation[i]};
  };
  return {axis(0), axis(1), params.count_padding};
}

}  // namespace

void max_pool_forward(CpuContext& context, const PoolWindows& windows, const Tensor& x, Out y, Out index) {
  dispatch_floating(x.dtype(), "max_pool2d", [&]<class T>() {
    if (!index.defined()) return run_max<T, void>(context, windows, x, y, nullptr);
    dispatch_index(index, [&]<class I>() { run_max<T>(context, windows, x, y, index.data<I>()); });
  });
}

void max_pool2d_int8(CpuContext& context, const Pool2dParams& params, const Tensor& x, Out y) {
  run_max<std::uint8_t, void>(context, windows_of(params, x, y), x, y, nullptr);
}

void max_pool_backward(CpuContext& context, const PoolWindows& windows, const Tensor& dy, const Tensor& index,
                       Out dx) {
  dispatch_index(index, [&]<class I>() {
    if (is_two_by_two(windows)) {
      const Plan plan(context, windows, dx.shape()[3]);
      return dispatch_size(dx.dtype(), [&]<class Bits>() {
        spread_windows(context, plan, dx.shape()[0], reinterpret_cast<const Bits*>(dy.raw_data()),
                       index.data<I>(), reinterpret_cast<Bits*>(dx.raw_data()));
      });
    }
    dispatch_floating(dx.dtype(), "max_pool2d",
                      [&]<class T>() { run_max_backward<T, I>(context, windows, dy, index, dx); });
  });
}

void max_pool_positions(CpuContext& context, const PoolWindows& windows, const Tensor& index, Out positions) {
  const std::int64_t P = windows.h.outputs, Q = windows.w.outputs, C = index.dim(3);
  const std::int64_t window = windows.h.window * windows.w.window, origin = position_of(windows, 0, 0, 0);
  // Offsets of a window's elements from its first one.
  const Scratch memory = context.scratch(static_cast<std::size_t>(window) * sizeof(std::int64_t));
  auto* steps = memory.as<std::int64_t>();
  for (std::int64_t i = 0; i < window; ++i) steps[i] = position_of(windows, 0, 0, i) - origin;
  dispatch_index(index, [&]<class I>() {
    const I* places = index.data<I>();
    auto* to = positions.data<std::int64_t>();
    cpu::for_each_task<false>(context, index.dim(0) * P * Q, grain_of(C), [&](std::int64_t pixel) {
      const std::int64_t first = position_of(windows, pixel / Q % P, pixel % Q, 0);
      for (std::int64_t i = pixel * C; i < (pixel + 1) * C; ++i) to[i] = first + steps[places[i]];
    });
  });
}

// Average --------------------------------------------------------------------------------------------------

void avg_pool_forward(CpuContext& context, const PoolWindows& windows, const Tensor& x, Out y) {
  dispatch_floating(x.dtype(), "avg_pool2d", [&]<class T>() {
    using A = Accumulate<T>;
    const Plan plan(context, windows, x.dim(3));
    const std::int64_t C = plan.C, W = plan.W;
    const T* in = x.data<T>();
    T* out = y.data<T>();
    for_each_output<kCommon<T>>(
        context, plan, x.dim(0), std::max<std::int64_t>(1, plan.grain() * plan.P / plan.H),
        [=](auto lanes, const Window& rows, const Window& columns, std::int64_t image, std::int64_t to) {
          A sum[lanes()] = {};
          for (std::int64_t h = rows.begin; h < rows.end; ++h) {
            const T* __restrict element = in + image + (h * W + columns.begin) * C;
            for (std::int64_t w = columns.begin; w < columns.end; ++w, element += C) {
              for (int l = 0; l < lanes(); ++l) sum[l] += A(element[l]);
            }
          }
          const A count = A(rows.count * columns.count);
          T* __restrict result = out + to;
          for (int l = 0; l < lanes(); ++l) result[l] = T(sum[l] / count);
        });
  });
}

void avg_pool2d_int8(CpuContext& context, const Pool2dParams& params, const Tensor& x, std::int32_t x_zero,
                     float scale, const Rounding& rounding, Out y) {
  const Plan plan(context, windows_of(params, x, y), x.dim(3));
  const std::int64_t C = plan.C, W = plan.W;
  const auto* in = x.data<std::uint8_t>();
  auto* out = y.data<std::uint8_t>();
  for_each_output<true>(
      context, plan, x.dim(0), std::max<std::int64_t>(1, plan.grain() * plan.P / plan.H),
      [=, round = RoundToU8(rounding)](auto lanes, const Window& rows, const Window& columns,
                                       std::int64_t image, std::int64_t to) {
        const auto count = static_cast<std::int32_t>((rows.end - rows.begin) * (columns.end - columns.begin));
        std::int32_t sum[lanes()];
        for (int l = 0; l < lanes(); ++l) sum[l] = -count * x_zero;
        for (std::int64_t h = rows.begin; h < rows.end; ++h) {
          const std::uint8_t* __restrict element = in + image + (h * W + columns.begin) * C;
          for (std::int64_t w = columns.begin; w < columns.end; ++w, element += C) {
            for (int l = 0; l < lanes(); ++l) sum[l] += element[l];
          }
        }
        std::uint8_t* __restrict result = out + to;
        const RoundToU8 r = round;
        const float s = scale;
        for (int l = 0; l < lanes(); ++l) result[l] = r(s * static_cast<float>(sum[l]));
      });
}

void avg_pool_backward(CpuContext& context, const PoolWindows& windows, const Tensor& dy, Out dx) {
  dispatch_floating(dx.dtype(), "avg_pool2d", [&]<class T>() {
    using A = Accumulate<T>;
    const Plan plan(context, windows, dx.shape()[3]);
    const std::int64_t C = plan.C, image = plan.P * plan.Q * C;
    const T* gradients = dy.data<T>();
    T* out = dx.data<T>();
    if (is_global(plan)) {  // all pixels of a channel get the same: a row's first is computed, then copied
      const A share = A(1) / A(plan.h.windows[0].count * plan.w.windows[0].count);
      parallel_for(context, dx.shape()[0] * plan.H, plan.grain(), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const T* const from = gradients + row / plan.H * C;
          T* const first = out + row * plan.W * C;
          vectorize_if<kCommon<T>>([&] {
            for (std::int64_t c = 0; c < C; ++c) first[c] = T(A(0) + share * A(from[c]));
          });
          for (std::int64_t w = 1; w < plan.W; ++w) std::copy_n(first, C, first + w * C);
        }
      });
      return;
    }
    for_each_input<kCommon<T>>(
        context, plan, dx.shape()[0],
        [&](auto lanes, std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
          const auto term = [&](std::int64_t p, std::int64_t q, std::int64_t) {
            const A share = A(1) / A(plan.h.windows[p].count * plan.w.windows[q].count);
            return [=](int, A g) { return share * g; };
          };
          gather<lanes()>(gradients + n * image + c, plan, plan.h.covers[h], plan.w.covers[w],
                          out + ((n * plan.H + h) * plan.W + w) * C + c, term);
        });
  });
}

}  // namespace athanor::kernels
