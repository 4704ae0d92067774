#include <array>
#include <cmath>

#include "tests/random_ops/op.h"

// Images of another size.

namespace athanor::random_ops {
namespace {

using Pair = std::array<std::int64_t, 2>;
using Scales = std::array<double, 2>;

// Near whole numbers, too, where a position falls on either side of a pixel's edge. At least a pixel is left.
// PyTorch's code for CPUs copies an axis whose size a scale happens to keep or to double; ours does not.
double draw_scale(Case& c, std::int64_t size) {
  const double drawn =
      c.draw.choose({1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 0.4, 0.5, 0.75, 0.999, 1.001, 1.999, 2.001});
  const auto inputs = static_cast<double>(size), outputs = std::max(std::floor(inputs * drawn), 1.0);
  return outputs == inputs ? 1 : outputs == 2 * inputs ? 2 : std::max(drawn, 1 / inputs);
}
void draw_interpolate(Case& c) {
  const bool bilinear = is_floating(c.dtype) && c.draw.chance(0.5);
  c.set("mode", std::string(bilinear ? "bilinear" : "nearest"));
  const bool aligned = bilinear && c.set("align_corners", c.draw.chance(0.4));
  c.input("x", {c.draw.size(2, 1), c.draw.size(7, 1), c.draw.size(7, 1), c.draw.size(5, 1)},
          {.low = 0, .high = 9, .wide = !bilinear});
  if (!aligned && c.draw.chance(0.4)) {
    const Shape x = c.call.tensors.tensor("x").shape();
    c.set("scale", Scales{draw_scale(c, x[1]), draw_scale(c, x[2])});
  } else {
    c.set("size", Pair{c.draw.size(11, 1), c.draw.size(11, 1)});
  }
}
void draw_shuffle(Case& c) {
  const auto r = c.set("r", c.draw.size(3, 1));
  c.input("x", {c.draw.size(2), c.draw.size(4), c.draw.size(4), c.draw.size(3, 1) * r * r},
          {.low = 0, .high = 9, .wide = true});
}
void draw_unshuffle(Case& c) {
  const auto r = c.set("r", c.draw.size(3, 1));
  c.input("x", {c.draw.size(2), c.draw.size(4) * r, c.draw.size(4) * r, c.draw.size(3, 1)},
          {.low = 0, .high = 9, .wide = true});
}

// Where an output lies, and what its two neighbours count for. Positions have the precision A.
template <class A> struct Place {
  std::int64_t low, high;
  A weight;

  Place(std::int64_t output, std::int64_t inputs, std::int64_t outputs, double given_scale, bool bilinear,
        bool aligned) {
    const bool to_corner = aligned && outputs > 1;
    const A step = aligned           ? (to_corner ? A(inputs - 1) / A(outputs - 1) : A(0))
                   : given_scale > 0 ? static_cast<A>(1 / given_scale)
                                     : A(inputs) / A(outputs);
    if (!bilinear) {
      const auto at =
          static_cast<std::int64_t>(std::floor(static_cast<float>(output) * static_cast<float>(step)));
      low = high = std::min(at, inputs - 1);
      weight = 0;
      return;
    }
    const A position = aligned ? A(output) * step : (A(output) + A(0.5)) * step - A(0.5);
    const A inside = position < 0 ? A(0) : position;
    low = std::min(static_cast<std::int64_t>(inside), inputs - 1);
    high = std::min(low + 1, inputs - 1);
    weight = std::min(inside - A(low), A(1));
  }
};

template <class A> Array resampled(Given& given) {
  const Array x = given.in("x");
  const bool bilinear = given.attribute<std::string>("mode", "nearest") == "bilinear";
  const bool aligned = given.attribute("align_corners", false);
  const auto scale = given.attribute("scale", Scales{0, 0});
  Pair size = given.attribute("size", Pair{0, 0});
  for (std::size_t axis = 0; axis < 2; ++axis) {
    if (size[axis] == 0)
      size[axis] = static_cast<std::int64_t>(
          std::floor(static_cast<double>(x.shape[1 + static_cast<int>(axis)]) * scale[axis]));
  }
  return generate({x.shape[0], size[0], size[1], x.shape[3]}, [&](const Index& i) {
    const Place<A> h(i[1], x.shape[1], size[0], scale[0], bilinear, aligned);
    const Place<A> w(i[2], x.shape[2], size[1], scale[1], bilinear, aligned);
    if (!bilinear) return x.at({i[0], h.low, w.low, i[3]});
    const auto row = [&](std::int64_t at) {
      return x.at({i[0], at, w.low, i[3]}) * Var(1 - static_cast<Real>(w.weight)) +
             x.at({i[0], at, w.high, i[3]}) * Var(w.weight);
    };
    return row(h.low) * Var(1 - static_cast<Real>(h.weight)) + row(h.high) * Var(h.weight);
  });
}
Array interpolate_op(Given& given) {
  return given.result == DType::f64 ? resampled<double>(given) : resampled<float>(given);
}

Array shuffle_op(Given& given) {
  const Array x = given.in("x");
  const auto r = given.attribute<std::int64_t>("r", 1);
  return generate({x.shape[0], x.shape[1] * r, x.shape[2] * r, x.shape[3] / (r * r)}, [&](const Index& i) {
    return x.at({i[0], i[1] / r, i[2] / r, (i[3] * r + i[1] % r) * r + i[2] % r});
  });
}
Array unshuffle_op(Given& given) {
  const Array x = given.in("x");
  const auto r = given.attribute<std::int64_t>("r", 1);
  return generate({x.shape[0], x.shape[1] / r, x.shape[2] / r, x.shape[3] * r * r}, [&](const Index& i) {
    return x.at({i[0], i[1] * r + i[3] / r % r, i[2] * r + i[3] % r, i[3] / (r * r)});
  });
}

}  // namespace

RandomOps image_ops() {
  return {
      {"interpolate", Types::any, draw_interpolate, interpolate_op},
      {"pixel_shuffle", Types::any, draw_shuffle, shuffle_op},
      {"pixel_unshuffle", Types::any, draw_unshuffle, unshuffle_op},
  };
}

}  // namespace athanor::random_ops
