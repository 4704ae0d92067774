#include <array>

#include "tests/random_ops/op.h"

// Convolutions of any geometry, and transposed ones.

namespace athanor::random_ops {
namespace {

using Pair = std::array<std::int64_t, 2>;

Pair draw_pair(Case& c, const char* name, std::int64_t least, std::int64_t most) {
  return c.set(name, Pair{c.draw.size(most, least), c.draw.size(most, least)});
}

void draw_operands(Case& c, const Shape& x, const Shape& w, std::int64_t filters) {
  // Vendors' code spreads what is not finite within a tile.
  const Values finite{.special = !c.draw.nonfinite && c.dtype != DType::bf16};
  c.input("x", x, finite);
  c.input("w", w, finite);
  if (c.draw.chance(0.6)) c.give("bias", c.draw.dense({filters}, c.dtype, finite));
}

// As many channels as vector code likes. In f32, of long sums, the peer's errors were measured without them.
void draw_many_channels(Case& c) {
  const std::int64_t padding = c.draw.integer(0, 1), filters = 16 * c.draw.integer(2, 3);
  for (const char* name : {"stride", "dilation"}) c.set(name, Pair{1, 1});
  c.set("padding", Pair{padding, padding});
  c.set("groups", 1);
  c.set("same_padding", false);
  draw_operands(c, {1, c.draw.integer(3, 6), c.draw.integer(3, 6), 32}, {filters, 3, 3, 32}, filters);
}

// x [N, H, W, C], w [K, R, S, C / groups]: a window, or all of it, lies within the padding around x.
void draw_conv(Case& c) {
  if (c.draw.chance(0.03) && c.dtype != DType::f32) return draw_many_channels(c);
  const std::int64_t groups = c.draw.chance(0.6) ? 1 : c.draw.integer(1, 4);
  const bool depthwise = c.draw.chance(0.15);
  const std::int64_t in_group = depthwise ? 1 : c.draw.size(c.draw.chance(0.2) ? 17 : 5, 1);
  const std::int64_t parts = depthwise ? c.draw.integer(1, 9) : groups;
  const std::int64_t filters = parts * (depthwise ? c.draw.integer(1, 2) : c.draw.size(6, 1));
  const std::int64_t most = c.draw.chance(0.1) ? 11 : 4;
  const Pair window = {c.draw.size(most, 1), c.draw.size(most, 1)};
  const bool same = c.set("same_padding", c.draw.chance(0.15));
  const Pair stride = same ? Pair{1, 1} : draw_pair(c, "stride", 1, c.draw.chance(0.2) ? 6 : 3);
  const Pair dilation = draw_pair(c, "dilation", 1, 3);
  const Pair padding = same ? Pair{0, 0} : draw_pair(c, "padding", 0, 3);
  c.set("stride", stride);
  c.set("padding", padding);
  c.set("groups", parts);
  Shape x = {c.draw.size(2), 0, 0, in_group * parts};
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const std::int64_t extent = dilation[axis] * (window[axis] - 1) + 1;
    const std::int64_t least = std::max<std::int64_t>(same ? 1 : extent - 2 * padding[axis], 1);
    x[1 + static_cast<int>(axis)] = least + c.draw.integer(0, 4);
  }
  draw_operands(c, x, {filters, window[0], window[1], in_group}, filters);
  if (c.draw.chance(0.3))
    c.set("activation", std::string(c.draw.choose({"relu", "gelu", "silu", "relu6", "hardswish"})));
}

void draw_conv_transpose(Case& c) {
  const std::int64_t groups = c.draw.chance(0.6) ? 1 : c.draw.integer(1, 3);
  const std::int64_t channels = groups * c.draw.size(5, 1), in_group = c.draw.size(5, 1);
  const Pair stride = draw_pair(c, "stride", 1, 3), dilation = draw_pair(c, "dilation", 1, 3);
  const Pair padding = draw_pair(c, "padding", 0, 2);
  Pair extra{}, window{};
  Shape x = {c.draw.size(2), 0, 0, channels};
  for (std::size_t axis = 0; axis < 2; ++axis) {
    extra[axis] = c.draw.integer(0, std::max(stride[axis], dilation[axis]) - 1);
    window[axis] = c.draw.size(4, 1);
    std::int64_t size = c.draw.size(5, 1);
    const auto result = [&] {
      return (size - 1) * stride[axis] - 2 * padding[axis] + dilation[axis] * (window[axis] - 1) +
             extra[axis] + 1;
    };
    while (result() < 1) ++size;
    x[1 + static_cast<int>(axis)] = size;
  }
  c.set("output_padding", extra);
  c.set("groups", groups);
  const Values finite{.special = !c.draw.nonfinite && c.dtype != DType::bf16};
  c.input("x", x, finite);
  c.input("w", {channels, window[0], window[1], in_group}, finite);
  if (c.draw.chance(0.6)) c.give("bias", c.draw.dense({groups * in_group}, c.dtype, finite));
}

struct Geometry {
  Pair stride, padding, dilation;
  std::int64_t groups;

  explicit Geometry(const Given& given)
      : stride(given.attribute("stride", Pair{1, 1})),
        padding(given.attribute("padding", Pair{0, 0})),
        dilation(given.attribute("dilation", Pair{1, 1})),
        groups(given.attribute<std::int64_t>("groups", 1)) {}

  /// Where filter place r lies for window p, before the padding is taken off.
  std::int64_t at(std::size_t axis, std::int64_t p, std::int64_t r) const {
    return p * stride[axis] + r * dilation[axis] - padding[axis];
  }
};

Array conv_op(Given& given) {
  const Array x = given.in("x"), w = given.in("w"), bias = given.in("bias");
  Geometry g(given);
  const bool same = given.attribute("same_padding", false);
  Shape shape = {x.shape[0], 0, 0, w.shape[0]};
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const int at = 1 + static_cast<int>(axis);
    const std::int64_t reach = g.dilation[axis] * (w.shape[at] - 1);
    if (same) g.padding[axis] = reach / 2;
    shape[at] = same ? x.shape[at] : (x.shape[at] + 2 * g.padding[axis] - reach - 1) / g.stride[axis] + 1;
  }
  const std::string activation = given.attribute<std::string>("activation", "none");
  const std::int64_t filters_per_group = w.shape[0] / g.groups;
  return generate(shape, [&](const Index& i) {
    const std::int64_t first = i[3] / filters_per_group * w.shape[3];
    std::vector<Var> left, right;
    for_each_index({w.shape[1], w.shape[2], w.shape[3]}, [&](const Index& f) {
      const std::int64_t h = g.at(0, i[1], f[0]), column = g.at(1, i[2], f[1]);
      if (h < 0 || h >= x.shape[1] || column < 0 || column >= x.shape[2]) return;
      left.push_back(x.at({i[0], h, column, first + f[2]}));
      right.push_back(w.at({i[3], f[0], f[1], f[2]}));
    });
    const Var y = dot(left, right);
    return activate(given.has("bias") ? y + bias.v[static_cast<std::size_t>(i[3])] : y, activation);
  });
}

Array conv_transpose_op(Given& given) {
  const Array x = given.in("x"), w = given.in("w"), bias = given.in("bias");
  const Geometry g(given);
  const auto extra = given.attribute("output_padding", Pair{0, 0});
  Shape shape = {x.shape[0], 0, 0, w.shape[3] * g.groups};
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const int at = 1 + static_cast<int>(axis);
    shape[at] = (x.shape[at] - 1) * g.stride[axis] - 2 * g.padding[axis] +
                g.dilation[axis] * (w.shape[at] - 1) + extra[axis] + 1;
  }
  const Array places = {shape, {}};
  std::vector<std::vector<Var>> left(static_cast<std::size_t>(shape.numel())), right = left;
  const std::int64_t in_group = x.shape[3] / g.groups;
  for_each_index(x.shape, [&](const Index& i) {
    for_each_index({w.shape[1], w.shape[2], w.shape[3]}, [&](const Index& f) {
      const std::int64_t h = g.at(0, i[1], f[0]), column = g.at(1, i[2], f[1]);
      if (h < 0 || h >= shape[1] || column < 0 || column >= shape[2]) return;
      const std::size_t to = places.place({i[0], h, column, i[3] / in_group * w.shape[3] + f[2]});
      left[to].push_back(x.at(i));
      right[to].push_back(w.at({i[3], f[0], f[1], f[2]}));
    });
  });
  std::size_t next = 0;
  return generate(shape, [&](const Index& i) {
    const Var y = dot(left[next], right[next]);
    ++next;
    return given.has("bias") ? y + bias.v[static_cast<std::size_t>(i[3])] : y;
  });
}

}  // namespace

RandomOps conv_ops() {
  return {
      {"conv2d", Types::floating, draw_conv, conv_op},
      {"conv_transpose2d", Types::floating, draw_conv_transpose, conv_transpose_op},
  };
}

}  // namespace athanor::random_ops
