#include "kernels/cpu/elementwise_map.h"

#include <algorithm>

namespace athanor::cpu {
namespace {

// Chunk size if an operand is strided or repeated: it is first copied densely into a buffer of that size.
constexpr std::int64_t kChunk = 512;

struct alignas(64) Buffer {
  std::byte bytes[kChunk * 8];
};

// Copies `rows` rows of n elements contiguously; in x the strides are row_step and step.
template <class T>
void lay_out(const std::byte* x, std::int64_t row_step, std::int64_t step, std::int64_t rows, std::int64_t n,
             Buffer& buffer) {
  const T* from = reinterpret_cast<const T*>(x);
  T* dense = reinterpret_cast<T*>(buffer.bytes);
  for (std::int64_t row = 0; row < rows; ++row, from += row_step, dense += n) {
    if (step == 0) {
      const T value = *from;
      for (std::int64_t i = 0; i < n; ++i) dense[i] = value;
    } else if (step == 1) {
      for (std::int64_t i = 0; i < n; ++i) dense[i] = from[i];
    } else {
      for (std::int64_t i = 0; i < n; ++i) dense[i] = from[i * step];
    }
  }
}

// Elements of one size are moved as unsigned integers, whatever their type.
void lay_out(std::int64_t size, const std::byte* x, std::int64_t row_step, std::int64_t step,
             std::int64_t rows, std::int64_t n, Buffer& buffer) {
  switch (size) {
    case 1: return lay_out<std::uint8_t>(x, row_step, step, rows, n, buffer);
    case 2: return lay_out<std::uint16_t>(x, row_step, step, rows, n, buffer);
    case 4: return lay_out<std::uint32_t>(x, row_step, step, rows, n, buffer);
    default: return lay_out<std::uint64_t>(x, row_step, step, rows, n, buffer);
  }
}

// The operands of a loop, followed by its result.
template <int N> struct Operands {
  ElementLoop loop;
  const void* f;
  Walk<N + 1> walk;
  std::array<const std::byte*, N> x;
  std::byte* y;
  std::int64_t size, y_size;  // bytes of an element
};

// Rows of many elements: one at a time, in chunks if an operand must be copied.
template <int N> void run_long_rows(CpuContext& context, const Operands<N>& of, std::int64_t grain) {
  std::array<std::int64_t, N> step;
  for (int k = 0; k < N; ++k) step[k] = of.walk.row_stride(k);
  const bool dense = std::all_of(step.begin(), step.end(), [](std::int64_t one) { return one == 1; });
  const auto row = [&](const auto& offset, std::int64_t n) {
    std::array<Buffer, N> buffer;
    const std::int64_t most = dense ? n : kChunk;
    for (std::int64_t at = 0; at < n; at += most) {
      const std::int64_t count = std::min(n - at, most);
      std::array<const std::byte*, N> x;
      for (int k = 0; k < N; ++k) {
        x[k] = of.x[k] + (offset[k] + at * step[k]) * of.size;
        if (step[k] == 1) continue;
        if (step[k] != 0 || at == 0)
          lay_out(of.size, x[k], 0, step[k], 1, count, buffer[k]);  // a repeated value is kept
        x[k] = buffer[k].bytes;
      }
      of.loop(of.f, x.data(), of.y + (offset[N] + at) * of.y_size, count);
    }
  };
  for_each_row<false>(context, of.walk, row, grain);
}

// Rows of few elements: as many at a time as fit in a buffer.
template <int N> void run_short_rows(CpuContext& context, const Operands<N>& of, std::int64_t grain) {
  const std::int64_t n = of.walk.row();
  Walk<N + 1> rows = of.walk;  // its rows are runs of short ones
  const int inner = --rows.rank;
  std::array<std::int64_t, N> step, row_step;
  for (int k = 0; k < N; ++k) step[k] = of.walk.stride[k][inner], row_step[k] = rows.row_stride(k);
  const auto run = [&](const auto& offset, std::int64_t count) {
    std::array<Buffer, N> buffer;
    const std::int64_t most = kChunk / n;
    for (std::int64_t at = 0; at < count; at += most) {
      const std::int64_t now = std::min(count - at, most);
      std::array<const std::byte*, N> x;
      for (int k = 0; k < N; ++k) {
        x[k] = of.x[k] + (offset[k] + at * row_step[k]) * of.size;
        if (step[k] == 1 && row_step[k] == n) continue;
        if (row_step[k] != 0 || at == 0)
          lay_out(of.size, x[k], row_step[k], step[k], now, n, buffer[k]);  // a repeated row is kept
        x[k] = buffer[k].bytes;
      }
      of.loop(of.f, x.data(), of.y + (offset[N] + at * n) * of.y_size, now * n);
    }
  };
  for_each_row<false>(context, rows, run, std::max<std::int64_t>(1, grain / n));
}

template <int N>
void run(CpuContext& context, ElementLoop loop, const void* f, const Tensor& y,
         const std::array<const Tensor*, N + 1>& operands, std::int64_t grain) {
  const auto bytes = [](const Tensor& one) { return static_cast<std::int64_t>(size_of(one.dtype())); };
  Operands<N> of{loop, f, {y.shape(), operands}, {}, y.raw_data(), bytes(*operands[0]), bytes(y)};
  for (int k = 0; k < N; ++k) of.x[k] = operands[k]->raw_data();
  if (of.walk.rank > 1 && 2 * of.walk.row() <= kChunk && of.walk.row() > 0)
    return run_short_rows(context, of, grain);
  run_long_rows(context, of, grain);
}

}  // namespace

void run_elements(CpuContext& context, ElementLoop loop, const void* f, const Tensor& y,
                  std::span<const Tensor* const> x, std::int64_t grain) {
  switch (x.size()) {
    case 1: return run<1>(context, loop, f, y, {x[0], &y}, grain);
    case 2: return run<2>(context, loop, f, y, {x[0], x[1], &y}, grain);
    default: return run<3>(context, loop, f, y, {x[0], x[1], x[2], &y}, grain);
  }
}

}  // namespace athanor::cpu
