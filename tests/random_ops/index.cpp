#include "tests/random_ops/op.h"

// Elements by their indices.

namespace athanor::random_ops {
namespace {

constexpr Values kAny{.low = 0, .high = 9, .wide = true};

Tensor draw_indices(Case& c, const Shape& shape, std::int64_t size) {
  const DType dtype = c.draw.choose({DType::i64, DType::i32, DType::u8});
  return c.draw.tensor(shape, dtype, {.low = 0, .high = static_cast<double>(size)});
}
Shape draw_x(Case& c) {
  Shape shape = c.draw.shape(1, 4);
  const auto axis = c.set("axis", static_cast<int>(c.draw.integer(0, shape.rank() - 1)));
  shape[axis] = std::max<std::int64_t>(shape[axis], 1);
  c.input("x", shape, kAny);
  return shape;
}
void draw_index_select(Case& c) {
  const Shape x = draw_x(c);
  c.give("index", draw_indices(c, {c.draw.size(9)}, x[c.call.attributes["axis"].get<int>()]));
}
void draw_gather(Case& c) {
  const Shape x = draw_x(c);
  const int axis = c.call.attributes["axis"].get<int>();
  Shape shape = x;
  for (int i = 0; i < x.rank(); ++i)
    shape[i] = i == axis ? c.draw.size(9) : c.draw.integer(x[i] > 0 ? 1 : 0, x[i]);
  c.give("index", draw_indices(c, shape, x[axis]));
}

Array index_select_op(Given& given) {
  const Array x = given.in("x"), index = given.constant("index");
  const auto axis = static_cast<std::size_t>(given.axis(x.shape.rank(), 0));
  Shape shape = x.shape;
  shape[static_cast<int>(axis)] = index.shape[0];
  return generate(shape, [&](Index i) {
    i[axis] = static_cast<std::int64_t>(index.v[static_cast<std::size_t>(i[axis])].value());
    return x.at(i);
  });
}
Array gather_op(Given& given) {
  const Array x = given.in("x"), index = given.constant("index");
  const auto axis = static_cast<std::size_t>(given.axis(x.shape.rank(), 0));
  return generate(index.shape, [&](Index i) {
    i[axis] = static_cast<std::int64_t>(index.at(i).value());
    return x.at(i);
  });
}

}  // namespace

RandomOps index_ops() {
  return {
      {"index_select", Types::any, draw_index_select, index_select_op},
      {"gather", Types::any, draw_gather, gather_op},
  };
}

}  // namespace athanor::random_ops
