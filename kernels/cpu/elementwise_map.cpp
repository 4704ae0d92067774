#include "kernels/cpu/elementwise_map.h"

#include <algorithm>

#include "kernels/cpu/context.h"

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
  std::array<const std::byte*, N> x;
  std::byte* y;
  std::int64_t size, y_size;  // bytes of an element
};

// Runs the loop over units of adjacent elements of y, whose places are those of `walk`: single elements, or
// short rows, as many at a time as fit in a buffer. In operand k, elements of a unit are step[k] apart.
template <int N>
void run_units(CpuContext& context, const Operands<N>& of, const Walk<N + 1>& walk, std::int64_t unit,
               const std::array<std::int64_t, N>& step, std::int64_t grain) {
  std::array<std::int64_t, N> unit_step;
  bool all_dense = true;
  for (int k = 0; k < N; ++k) {
    unit_step[k] = walk.row_stride(k);
    all_dense = all_dense && step[k] == 1 && unit_step[k] == unit;
  }
  const auto run = [&](const auto& offset, std::int64_t count) {
    std::array<Buffer, N> buffer;
    const std::int64_t most = all_dense ? count : kChunk / unit;
    for (std::int64_t at = 0; at < count; at += most) {
      const std::int64_t units = std::min(count - at, most);
      std::array<const std::byte*, N> x;
      for (int k = 0; k < N; ++k) {
        x[k] = of.x[k] + (offset[k] + at * unit_step[k]) * of.size;
        if (step[k] == 1 && unit_step[k] == unit) continue;
        if (unit_step[k] != 0 || at == 0) {  // else the buffer has it
          if (unit == 1)
            lay_out(of.size, x[k], 0, unit_step[k], 1, units, buffer[k]);
          else
            lay_out(of.size, x[k], unit_step[k], step[k], units, unit, buffer[k]);
        }
        x[k] = buffer[k].bytes;
      }
      of.loop(of.f, x.data(), of.y + (offset[N] + at * unit) * of.y_size, units * unit);
    }
  };
  for_each_row<false>(context, walk, run, std::max<std::int64_t>(1, grain / unit));
}

template <int N>
void run(CpuContext& context, ElementLoop loop, const void* f, const Tensor& y,
         const std::array<const Tensor*, N + 1>& operands, std::int64_t grain) {
  const auto bytes = [](const Tensor& one) { return static_cast<std::int64_t>(size_of(one.dtype())); };
  const Walk<N + 1> walk(y.shape(), operands);
  Operands<N> of{loop, f, {}, y.raw_data(), bytes(*operands[0]), bytes(y)};
  for (int k = 0; k < N; ++k) of.x[k] = operands[k]->raw_data();
  std::array<std::int64_t, N> step;
  step.fill(1);
  const std::int64_t row = walk.row();
  if (walk.rank == 1 || 2 * row > kChunk || row <= 0) return run_units<N>(context, of, walk, 1, step, grain);
  Walk<N + 1> rows = walk;  // its rows are runs of short ones
  --rows.rank;
  for (int k = 0; k < N; ++k) step[k] = walk.row_stride(k);
  run_units<N>(context, of, rows, row, step, grain);
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
