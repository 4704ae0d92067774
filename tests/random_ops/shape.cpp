#include <cmath>

#include "tests/random_ops/op.h"

// Views, joining and casts.

namespace athanor::random_ops {
namespace {

constexpr Values kAny{.low = 0, .high = 9, .wide = true};

Shape draw_x(Case& c, int least_rank = 1) {
  const Shape shape = c.draw.shape(least_rank, 4);
  c.input("x", shape, kAny);
  return shape;
}
int draw_axis(Case& c, const Shape& shape) {
  return c.set("axis", static_cast<int>(c.draw.integer(-shape.rank(), shape.rank() - 1)));
}
std::int64_t size_at(const Shape& shape, int axis) {
  return shape[axis < 0 ? axis + shape.rank() : axis];
}

void draw_reshape(Case& c) {
  // The sizes of x in another order, two of them joined.
  const Shape x = draw_x(c);
  std::vector<std::int64_t> sizes;
  for (int i = x.rank() - 1; i >= 0; --i) {
    if (!sizes.empty() && c.draw.chance(0.5)) {
      sizes.back() *= x[i];
    } else {
      sizes.push_back(x[i]);
    }
  }
  if (x.numel() > 0 && c.draw.chance(0.5))
    sizes[static_cast<std::size_t>(c.draw.integer(0, static_cast<std::int64_t>(sizes.size()) - 1))] = -1;
  c.set("shape", sizes);
}
void draw_flatten(Case& c) {
  const Shape x = draw_x(c);
  const auto start = c.set("start", static_cast<int>(c.draw.integer(0, x.rank() - 1)));
  c.set("end", static_cast<int>(c.draw.integer(start, x.rank() - 1)));
}
void draw_permute(Case& c) {
  const Shape x = draw_x(c);
  std::vector<int> order;
  for (int i = 0; i < x.rank(); ++i) order.insert(order.begin() + c.draw.integer(0, i), i);
  c.set("order", order);
}
void draw_narrow(Case& c) {
  const Shape x = draw_x(c);
  const std::int64_t size = size_at(x, draw_axis(c, x)), start = c.set("start", c.draw.integer(0, size));
  c.set("length", c.draw.integer(0, size - start));
}
void draw_select(Case& c) {
  Shape x = c.draw.shape(1, 4);
  const auto axis = static_cast<int>(c.draw.integer(0, x.rank() - 1));
  x[axis] = std::max<std::int64_t>(x[axis], 1);
  c.set("axis", axis);
  c.input("x", x, kAny);
  c.set("index", c.draw.integer(-x[axis], x[axis] - 1));
}
void draw_squeeze(Case& c) {
  Shape x = c.draw.shape(1, 4);
  const auto axis = c.set("axis", static_cast<int>(c.draw.integer(0, x.rank() - 1)));
  x[axis] = 1;
  c.input("x", x, kAny);
}
void draw_unsqueeze(Case& c) {
  const Shape x = draw_x(c, 0);
  c.set("axis", static_cast<int>(c.draw.integer(-x.rank() - 1, x.rank())));
}
void draw_expand(Case& c) {
  const Shape shape = c.draw.shape(0, 4);
  c.input("x", c.draw.broadcasting_to(shape), kAny);
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < shape.rank(); ++i) sizes.push_back(shape[i]);
  c.set("shape", sizes);
}
void draw_copy(Case& c) {
  draw_x(c, 0);
}
void draw_cast(Case& c) {
  const Shape shape = c.draw.shape(0, 4);
  const DType to = kDTypes[c.draw.integer(0, 8)];
  c.set("dtype", std::string(name_of(to)));
  c.input("x", shape,
          {.low = -300.0, .high = is_floating(c.dtype) ? 300.0 : 200.0, .wide = c.draw.chance(0.3)});
}
void draw_cat(Case& c) {
  Shape shape = c.draw.shape(1, 3, 60);
  const auto axis = c.set("axis", static_cast<int>(c.draw.integer(0, shape.rank() - 1)));
  const std::int64_t parts = c.draw.integer(1, 4);
  for (std::int64_t i = 0; i < parts; ++i) {
    shape[axis] = c.draw.size(5);
    c.input("x" + std::to_string(i), shape, kAny);
  }
}
void draw_stack(Case& c) {
  const Shape shape = c.draw.shape(0, 3, 60);
  c.set("axis", static_cast<int>(c.draw.integer(-shape.rank() - 1, shape.rank())));
  const std::int64_t parts = c.draw.integer(1, 4);
  for (std::int64_t i = 0; i < parts; ++i) c.input("x" + std::to_string(i), shape, kAny);
}

Array same_elements(Array x, const Shape& shape) {
  x.shape = shape;
  return x;
}
Array reshape_op(Given& given) {
  const Array x = given.in("x");
  const auto sizes = given.attribute("shape", std::vector<std::int64_t>{});
  Shape shape;
  std::int64_t known = 1;
  for (const std::int64_t size : sizes) known *= size == -1 ? 1 : size;
  for (const std::int64_t size : sizes) shape.push_back(size == -1 ? x.shape.numel() / known : size);
  return same_elements(x, shape);
}
Array flatten_op(Given& given) {
  const Array x = given.in("x");
  const int start = given.attribute("start", 1), end = given.attribute("end", -1);
  Shape shape;
  for (int i = 0; i < x.shape.rank(); ++i) {
    if (i > start && i <= end) {
      shape[shape.rank() - 1] *= x.shape[i];
    } else {
      shape.push_back(x.shape[i]);
    }
  }
  return same_elements(x, shape);
}
Array permute_op(Given& given) {
  const Array x = given.in("x");
  const auto order = given.attribute("order", std::vector<int>{});
  Shape shape;
  for (const int axis : order) shape.push_back(x.shape[axis]);
  return generate(shape, [&](const Index& i) {
    Index from{};
    for (std::size_t axis = 0; axis < order.size(); ++axis)
      from[static_cast<std::size_t>(order[axis])] = i[axis];
    return x.at(from);
  });
}
Array narrow_op(Given& given) {
  const Array x = given.in("x");
  const int axis = given.axis(x.shape.rank(), 0);
  Shape shape = x.shape;
  shape[axis] = given.attribute<std::int64_t>("length", 0);
  return generate(shape, [&](Index i) {
    i[static_cast<std::size_t>(axis)] += given.attribute<std::int64_t>("start", 0);
    return x.at(i);
  });
}
Array select_op(Given& given) {
  const Array x = given.in("x");
  const int axis = given.axis(x.shape.rank(), 0);
  std::int64_t at = given.attribute<std::int64_t>("index", 0);
  if (at < 0) at += x.shape[axis];
  std::vector<bool> axes(static_cast<std::size_t>(x.shape.rank()), false);
  axes[static_cast<std::size_t>(axis)] = true;
  return reduce(x, axes, false,
                [&](const std::vector<Var>& slice) { return slice[static_cast<std::size_t>(at)]; });
}
Array squeeze_op(Given& given) {
  const Array x = given.in("x");
  return same_elements(x,
                       reduced(x.shape, given.axes(x.shape.rank(), {given.axis(x.shape.rank(), 0)}), false));
}
Shape with_axis(const Shape& shape, int axis, std::int64_t size) {
  Shape result;
  for (int i = 0; i <= shape.rank(); ++i) {
    if (i == axis) result.push_back(size);
    if (i < shape.rank()) result.push_back(shape[i]);
  }
  return result;
}
Array unsqueeze_op(Given& given) {
  const Array x = given.in("x");
  return same_elements(x, with_axis(x.shape, given.axis(x.shape.rank() + 1, 0), 1));
}
Array expand_op(Given& given) {
  const Array x = given.in("x");
  Shape shape;
  for (const std::int64_t size : given.attribute("shape", std::vector<std::int64_t>{})) shape.push_back(size);
  return generate(shape, [&](const Index& i) { return x.broadcast(i, shape.rank()); });
}
Array copy_op(Given& given) {
  return given.in("x");
}

// Integers are truncated towards zero and saturate; NaN is 0.
Real to_integer(Real x, DType dtype) {
  if (std::isnan(x)) return 0;
  const Real top = dtype == DType::u8    ? 255
                   : dtype == DType::i8  ? 127
                   : dtype == DType::i32 ? 2147483647
                                         : 9223372036854775807.0L;
  const Real bottom = dtype == DType::u8 ? 0 : -top - 1;
  return std::min(std::max(std::trunc(x), bottom), top);
}
Array cast_op(Given& given) {
  const DType from = given.result, to = *dtype_named(given.attribute<std::string>("dtype", "f32"));
  const Array x = given.in("x");
  given.result = to;
  if (is_floating(to)) return x;
  return generate(x.shape, [&](const Index& i) {
    const Real value = x.at(i).value();
    if (to == DType::boolean) return Var(value != 0 ? 1 : 0);
    return Var(is_floating(from) ? to_integer(value, to) : value);
  });
}

Array joined(Given& given, bool stacked) {
  std::vector<Array> parts;
  while (given.has("x" + std::to_string(parts.size())))
    parts.push_back(given.in("x" + std::to_string(parts.size())));
  const int rank = parts[0].shape.rank() + (stacked ? 1 : 0), axis = given.axis(rank, 0);
  Shape shape = stacked ? with_axis(parts[0].shape, axis, 0) : parts[0].shape;
  shape[axis] = 0;
  std::vector<std::pair<std::size_t, std::int64_t>> sources;  // part, and place along the axis in it
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (stacked) parts[p].shape = with_axis(parts[p].shape, axis, 1);
    for (std::int64_t i = 0; i < parts[p].shape[axis]; ++i) sources.emplace_back(p, i);
  }
  shape[axis] = static_cast<std::int64_t>(sources.size());
  return generate(shape, [&](Index i) {
    const auto [part, at] = sources[static_cast<std::size_t>(i[static_cast<std::size_t>(axis)])];
    i[static_cast<std::size_t>(axis)] = at;
    return parts[part].at(i);
  });
}

}  // namespace

RandomOps shape_ops() {
  return {
      {"reshape", Types::any, draw_reshape, reshape_op},
      {"flatten", Types::any, draw_flatten, flatten_op},
      {"permute", Types::any, draw_permute, permute_op},
      {"narrow", Types::any, draw_narrow, narrow_op},
      {"select", Types::any, draw_select, select_op},
      {"squeeze", Types::any, draw_squeeze, squeeze_op},
      {"unsqueeze", Types::any, draw_unsqueeze, unsqueeze_op},
      {"expand", Types::any, draw_expand, expand_op},
      {"contiguous", Types::any, draw_copy, copy_op},
      {"clone", Types::any, draw_copy, copy_op},
      {"cast", Types::any, draw_cast, cast_op},
      {"cat", Types::any, draw_cat, [](Given& g) { return joined(g, false); }},
      {"stack", Types::any, draw_stack, [](Given& g) { return joined(g, true); }},
  };
}

}  // namespace athanor::random_ops
