#pragma once

#include <array>
#include <vector>

#include "tensor/shape.h"
#include "tests/random_ops/tape.h"

namespace athanor::random_ops {

/// A place in a tensor; axes beyond its rank are 0.
using Index = std::array<std::int64_t, 8>;

/// Numbers of the tape in row-major order.
struct Array {
  Shape shape;
  std::vector<Var> v;

  static Array of(const Shape& shape) {
    return {shape, std::vector<Var>(static_cast<std::size_t>(shape.numel()))};
  }

  std::size_t place(const Index& index) const {
    std::int64_t flat = 0;
    for (int i = 0; i < shape.rank(); ++i) flat = flat * shape[i] + index[static_cast<std::size_t>(i)];
    return static_cast<std::size_t>(flat);
  }
  Var& at(const Index& index) { return v[place(index)]; }
  Var at(const Index& index) const { return v[place(index)]; }
  /// What lies there once this is broadcast to a shape of that rank.
  Var broadcast(const Index& index, int rank) const {
    Index own{};
    for (int i = 0; i < shape.rank(); ++i) {
      const int from = i + rank - shape.rank();
      own[static_cast<std::size_t>(i)] = shape[i] == 1 ? 0 : index[static_cast<std::size_t>(from)];
    }
    return at(own);
  }
};

/// visit(index) for every element, in row-major order.
template <class F> void for_each_index(const Shape& shape, const F& visit) {
  Index index{};
  for (std::int64_t flat = 0; flat < shape.numel(); ++flat) {
    std::int64_t rest = flat;
    for (int i = shape.rank() - 1; i >= 0; --i) {
      index[static_cast<std::size_t>(i)] = rest % shape[i];
      rest /= shape[i];
    }
    visit(index);
  }
}

/// An array whose element at `index` is f(index).
template <class F> Array generate(const Shape& shape, const F& f) {
  Array y = Array::of(shape);
  std::size_t next = 0;
  for_each_index(shape, [&](const Index& index) { y.v[next++] = f(index); });
  return y;
}

/// The shape without those axes, or with 1 in their places.
inline Shape reduced(const Shape& shape, const std::vector<bool>& axes, bool keepdim) {
  Shape result;
  for (int i = 0; i < shape.rank(); ++i) {
    if (!axes[static_cast<std::size_t>(i)]) {
      result.push_back(shape[i]);
    } else if (keepdim) {
      result.push_back(1);
    }
  }
  return result;
}

/// y = f(the elements that differ only along `axes`, in row-major order) for all others.
template <class F> Array reduce(const Array& x, const std::vector<bool>& axes, bool keepdim, const F& f) {
  const Shape kept = reduced(x.shape, axes, true);
  std::vector<std::vector<Var>> groups(static_cast<std::size_t>(kept.numel()));
  const Array places = {kept, {}};
  for_each_index(x.shape, [&](Index index) {
    const Var element = x.at(index);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (axes[i]) index[i] = 0;
    }
    groups[places.place(index)].push_back(element);
  });
  Array y = {reduced(x.shape, axes, keepdim), {}};
  for (const auto& group : groups) y.v.push_back(f(group));
  return y;
}

/// x with every slice along `axis` replaced by f(slice), of any one length.
template <class F> Array map_slices(const Array& x, int axis, std::int64_t length, const F& f) {
  Shape shape = x.shape;
  shape[axis] = length;
  Array y = Array::of(shape);
  Shape others = shape;
  others[axis] = 1;
  for_each_index(others, [&](Index index) {
    auto& along = index[static_cast<std::size_t>(axis)];
    std::vector<Var> slice;
    for (along = 0; along < x.shape[axis]; ++along) slice.push_back(x.at(index));
    const std::vector<Var> result = f(slice);
    for (along = 0; along < length; ++along) y.at(index) = result[static_cast<std::size_t>(along)];
  });
  return y;
}

}  // namespace athanor::random_ops
