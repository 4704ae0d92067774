#include "tests/random_ops/draw.h"

#include <algorithm>
#include <cmath>

#include "tests/support/compare.h"

namespace athanor::random_ops {

double largest(DType dtype) {
  switch (dtype) {
    case DType::f64: return std::numeric_limits<double>::max();
    case DType::f32: return std::numeric_limits<float>::max();
    case DType::bf16: return 0x1.fep127;
    default: return 65504;
  }
}

double smallest(DType dtype) {
  switch (dtype) {
    case DType::f64: return std::numeric_limits<double>::denorm_min();
    case DType::f32: return 0x1p-149;
    case DType::bf16: return 0x1p-133;
    default: return 0x1p-24;
  }
}

namespace {

// FNV-1a: the same everywhere, unlike std::hash.
std::uint64_t hash_of(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

Draw::Draw(std::uint64_t seed, const std::string& op, std::uint64_t number)
    : key_{seed ^ hash_of(op), number} {
  const double kind = uniform(0, 1);
  special = kind < 0.3;
  nonfinite = kind < 0.15;
}

double Draw::uniform(double low, double high) {
  return low + (high - low) * random_uniform(philox_word(key_, next_++));
}

std::int64_t Draw::integer(std::int64_t low, std::int64_t high) {
  return low +
         static_cast<std::int64_t>(philox_word(key_, next_++) % static_cast<std::uint64_t>(high - low + 1));
}

double Draw::number(double low, double high) {
  return std::round(uniform(low, high) * 8) / 8;
}

std::int64_t Draw::size(std::int64_t most, std::int64_t least) {
  if (least == 0 && chance(0.03)) return 0;
  const std::int64_t lowest = std::max<std::int64_t>(least, 1);
  if (chance(0.2) || most <= lowest) return lowest;
  return integer(lowest, most);
}

/// Longer than what vector code works on at a time, and than what it sums in its widest loops; or on either
/// side of a power of two, where blocks and the shares of threads end.
std::int64_t Draw::length() {
  if (chance(0.7)) return integer(500, 1100);
  return choose<std::int64_t>({4096, 8192, 16384}) + integer(-2, 2);
}

Shape Draw::shape(int least_rank, int most_rank, std::int64_t elements, std::int64_t longest) {
  if (least_rank <= 1 && elements >= 200 && chance(0.015)) return {std::min(length(), longest)};
  const auto rank = static_cast<int>(integer(least_rank, most_rank));
  Shape result;
  for (int i = 0; i < rank; ++i) {
    // The last of few axes is long at times: vector code has a beginning and an end.
    const bool is_long = i == rank - 1 && chance(0.3);
    result.push_back(size(std::min<std::int64_t>(elements, is_long ? 70 : 9)));
    elements = result[i] > 1 ? std::max<std::int64_t>(elements / result[i], 1) : elements;
  }
  return result;
}

Shape Draw::broadcasting_to(const Shape& wanted) {
  if (chance(0.5)) return wanted;
  Shape result;
  const int from = chance(0.5) ? static_cast<int>(integer(0, wanted.rank())) : 0;
  for (int i = from; i < wanted.rank(); ++i) result.push_back(chance(0.4) ? 1 : wanted[i]);
  return result;
}

double Draw::special_element(DType dtype, const Values& values) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const double tiny = smallest(dtype) * static_cast<double>(integer(1, 60));
  const double denormal = values.denormal ? tiny : 0.0;
  const double value = nonfinite ? choose({kInfinity, -kInfinity, kNaN, 0.0, -0.0, denormal, -denormal})
                                 : choose({0.0, -0.0, denormal, -denormal});
  return values.positive ? std::fabs(value) : value;
}

double Draw::element(DType dtype, const Values& values) {
  if (values.zeros && chance(0.3)) return 0;
  const double least = dtype == DType::u8 ? std::max(values.low, 0.0) : values.low;
  if (dtype == DType::boolean) return chance(0.5) ? 1 : 0;
  if (!is_floating(dtype)) {
    if (!values.wide || chance(0.5)) return std::floor(uniform(least, values.high));
    const int bits = static_cast<int>(8 * size_of(dtype)) - (dtype == DType::u8 ? 0 : 1);
    const double size = std::floor(std::exp2(uniform(0, bits)));
    return dtype == DType::u8 || chance(0.5) ? size : -size;
  }
  if (special && values.special && chance(0.1)) return special_element(dtype, values);
  if (!values.wide || chance(0.67)) return uniform(values.low, values.high);
  const double magnitude = std::exp2(uniform(std::log2(smallest(dtype)), std::log2(largest(dtype))));
  return values.positive || chance(0.5) ? magnitude : -magnitude;
}

Tensor Draw::dense(const Shape& shape, DType dtype, const Values& values) {
  Tensor x = Tensor::empty(shape, {dtype, kCpu});
  dispatch_any(dtype, [&]<class T>() {
    T* to = x.data<T>();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double value = element(dtype, values);
      if constexpr (sizeof(T) == 2) {
        to[i] = T(static_cast<float>(value));
      } else if constexpr (std::is_same_v<T, bool>) {
        to[i] = value != 0;
      } else {
        to[i] = static_cast<T>(value);
      }
    }
  });
  return x;
}

Tensor Draw::tensor(const Shape& shape, DType dtype, const Values& values) {
  if (chance(0.4)) return dense(shape, dtype, values);
  // Axes lie in memory in any order, each with a step of its own, a few of them with none.
  std::vector<int> order;
  for (int i = 0; i < shape.rank(); ++i) order.push_back(i);
  const bool transposed = chance(0.4), gapped = chance(0.4), expanded = chance(0.25);
  for (int i = shape.rank() - 1; transposed && i > 0; --i) {
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(integer(0, i))]);
  }
  Strides strides = shape;
  std::int64_t step = gapped ? integer(1, 3) : 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    const int axis = order[static_cast<std::size_t>(i)];
    const bool repeats = expanded && shape[axis] > 1 && chance(0.5);
    strides[axis] = repeats ? 0 : step;
    if (!repeats) step *= shape[axis] + (gapped ? integer(0, 2) : 0);
  }
  const std::int64_t offset = chance(0.5) ? integer(1, 5) : 0;
  return dense({offset + std::max<std::int64_t>(step, 1)}, dtype, values)
      .view_as_strided(shape, strides, offset);
}

}  // namespace athanor::random_ops
