#include <cmath>

#include "tests/random_ops/op.h"

// Matrix products, and what is made of them.

namespace athanor::random_ops {
namespace {

std::int64_t draw_extent(Case& c) {
  return c.draw.size(c.draw.chance(0.15) ? 40 : 8);
}
Shape appended(Shape shape, std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes) shape.push_back(size);
  return shape;
}
Shape draw_batch(Case& c) {
  return c.draw.chance(0.5) ? Shape{} : c.draw.shape(1, 2, 6);
}

// Processors' own products of bf16 take denormals for 0.
Values values_of(const Case& c) {
  return {.denormal = c.dtype != DType::bf16};
}

void draw_matmul(Case& c) {
  const std::int64_t m = draw_extent(c), k = draw_extent(c), n = c.draw.size(8);
  const Shape batch = draw_batch(c);
  const bool row = c.draw.chance(0.1), column = c.draw.chance(0.1);
  c.input("a", row ? Shape{k} : appended(c.draw.broadcasting_to(batch), {m, k}), values_of(c));
  c.input("b", column ? Shape{k} : appended(c.draw.broadcasting_to(batch), {k, n}), values_of(c));
}
void draw_linear(Case& c) {
  const std::int64_t k = draw_extent(c), n = draw_extent(c);
  c.input("x", appended(c.draw.shape(0, 3, 12), {k}), values_of(c));
  c.input("w", {n, k}, values_of(c));
  if (c.draw.chance(0.6)) c.give("bias", c.draw.dense({n}, c.dtype, values_of(c)));
  if (c.draw.chance(0.4))
    c.set("activation", std::string(c.draw.choose({"relu", "gelu", "silu", "relu6", "hardswish"})));
}
void draw_attention(Case& c) {
  const std::int64_t queries = c.draw.size(6), keys = c.draw.size(6, 1), d = c.draw.size(8, 1);
  const Shape batch = draw_batch(c);
  const Values plain{.low = -2, .high = 2, .special = false};
  c.input("q", appended(batch, {queries, d}), plain);
  c.input("k", appended(c.draw.broadcasting_to(batch), {keys, d}), plain);
  c.input("v", appended(c.draw.broadcasting_to(batch), {keys, c.draw.size(6, 1)}),
          {.special = !c.draw.nonfinite && c.dtype != DType::bf16});
  const double kind = c.draw.uniform(0, 1);
  const Shape mask = appended(batch, {queries, keys});
  if (kind < 0.2) {
    c.set("causal", true);
  } else if (kind < 0.4) {
    c.give("mask", c.draw.tensor(c.draw.broadcasting_to(mask), DType::boolean));
  } else if (kind < 0.6) {
    c.input("mask", c.draw.broadcasting_to(mask), plain);
  }
  if (c.draw.chance(0.3)) c.set("scale", c.draw.choose({0.125, 0.5, 1.0}));
}

// Leading axes of both, broadcast; rank-1 operands are a row and a column.
Array product(Array a, Array b) {
  const bool row = a.shape.rank() == 1, column = b.shape.rank() == 1;
  if (row) a.shape = {1, a.shape[0]};
  if (column) b.shape = {b.shape[0], 1};
  const auto leading = [](const Shape& shape) {
    Shape result;
    for (int i = 0; i + 2 < shape.rank(); ++i) result.push_back(shape[i]);
    return result;
  };
  const std::int64_t m = a.shape[a.shape.rank() - 2], k = a.shape[a.shape.rank() - 1],
                     n = b.shape[b.shape.rank() - 1];
  const Shape shape = appended(broadcast_shapes(leading(a.shape), leading(b.shape), "reference"), {m, n});
  const auto rank = static_cast<std::size_t>(shape.rank());
  const auto place = [&](const Array& x, Index index, std::size_t axis, std::int64_t at) {
    Index own{};
    index[axis] = at;
    const auto shift = rank - static_cast<std::size_t>(x.shape.rank());
    for (std::size_t i = shift; i < rank; ++i) {
      const bool batch = i + 2 < rank;
      own[i - shift] = batch && x.shape[static_cast<int>(i - shift)] == 1 ? 0 : index[i];
    }
    return x.at(own);
  };
  Array y = generate(shape, [&](const Index& index) {
    std::vector<Var> left, right;
    for (std::int64_t j = 0; j < k; ++j) {
      left.push_back(place(a, index, rank - 1, j));
      right.push_back(place(b, index, rank - 2, j));
    }
    return dot(left, right);
  });
  Shape kept = leading(shape);
  if (!row) kept.push_back(m);
  if (!column) kept.push_back(n);
  y.shape = kept;
  return y;
}
Array swapped(const Array& x) {
  Shape shape = x.shape;
  const auto rank = static_cast<std::size_t>(shape.rank());
  std::swap(shape[shape.rank() - 1], shape[shape.rank() - 2]);
  return generate(shape, [&](Index index) {
    std::swap(index[rank - 1], index[rank - 2]);
    return x.at(index);
  });
}

Array matmul_op(Given& given) {
  const Array a = given.in("a");
  return product(a, given.in("b"));
}
Array linear_op(Given& given) {
  const Array x = given.in("x"), w = given.in("w"), bias = given.in("bias");
  const std::string activation = given.attribute<std::string>("activation", "none");
  Array y = product(x, swapped(w));
  for (std::size_t i = 0; i < y.v.size(); ++i) {
    if (given.has("bias")) y.v[i] = y.v[i] + bias.v[i % bias.v.size()];
    y.v[i] = activate(y.v[i], activation);
  }
  return y;
}

Array attention_op(Given& given) {
  const Array q = given.in("q"), k = given.in("k"), v = given.in("v");
  const bool masked = given.has("mask"), choice = masked && given.tensor("mask").dtype() == DType::boolean;
  const Array mask = !masked ? Array{} : choice ? given.constant("mask") : given.in("mask");
  const auto d = static_cast<Real>(q.shape[q.shape.rank() - 1]);
  const Real asked = given.attribute("scale", 0.0), scale = asked != 0 ? asked : 1 / std::sqrt(d);
  const Array scores = product(q, swapped(k));
  const int rank = scores.shape.rank();
  Array weights = Array::of(scores.shape);
  Shape rows = scores.shape;
  rows[rank - 1] = 1;
  for_each_index(rows, [&](Index index) {
    auto& key = index[static_cast<std::size_t>(rank - 1)];
    const std::int64_t query = index[static_cast<std::size_t>(rank - 2)];
    std::vector<Var> logits;
    std::vector<std::int64_t> keys;
    for (key = 0; key < scores.shape[rank - 1]; ++key) {
      weights.at(index) = Var(0);
      if (given.attribute("causal", false) && key > query) continue;
      if (choice && mask.broadcast(index, rank).value() == 0) continue;
      const Var score = scores.at(index) * Var(scale);
      logits.push_back(masked && !choice ? score + mask.broadcast(index, rank) : score);
      keys.push_back(key);
    }
    if (keys.empty()) return;
    const std::vector<Var> softmax = log_softmax(logits, false);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      key = keys[i];
      weights.at(index) = softmax[i];
    }
  });
  return product(weights, v);
}

}  // namespace

RandomOps matmul_ops() {
  return {
      {"matmul", Types::floating, draw_matmul, matmul_op},
      {"linear", Types::floating, draw_linear, linear_op},
      {"scaled_dot_product_attention", Types::floating, draw_attention, attention_op},
  };
}

}  // namespace athanor::random_ops
