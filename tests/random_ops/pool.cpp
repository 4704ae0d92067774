#include <array>
#include <cmath>

#include "tests/random_ops/op.h"

// Pools over windows of images.

namespace athanor::random_ops {
namespace {

using Pair = std::array<std::int64_t, 2>;

// One axis of a pool: windows of places that may lie in the padding.
struct Axis {
  std::int64_t inputs, window, stride, padding, dilation, outputs;

  Axis(std::int64_t size, const Given& given, std::size_t axis)
      : Axis(size, given.attribute("window", Pair{2, 2})[axis], given.attribute("stride", Pair{2, 2})[axis],
             given.attribute("padding", Pair{0, 0})[axis], given.attribute("dilation", Pair{1, 1})[axis],
             given.attribute("ceil_mode", false)) {}
  Axis(std::int64_t size, std::int64_t w, std::int64_t s, std::int64_t p, std::int64_t d, bool up)
      : inputs(size), window(w), stride(s), padding(p), dilation(d) {
    const std::int64_t room = inputs + 2 * padding - dilation * (window - 1) - 1;
    outputs = room < 0 ? 0 : (room + (up ? stride - 1 : 0)) / stride + 1;
    if ((outputs - 1) * stride >= inputs + padding) --outputs;
  }
  std::int64_t at(std::int64_t output, std::int64_t place) const {
    return output * stride - padding + place * dilation;
  }
  bool inside(std::int64_t place) const { return place >= 0 && place < inputs; }
  bool every_window_sees_x() const {
    for (std::int64_t o = 0; o < outputs; ++o) {
      bool sees = false;
      for (std::int64_t i = 0; i < window; ++i) sees |= inside(at(o, i));
      if (!sees) return false;
    }
    return outputs > 0;
  }
};

Shape draw_image(Case& c) {
  return {c.draw.size(3), c.draw.size(9, 1), c.draw.size(9, 1), c.draw.size(c.draw.chance(0.2) ? 33 : 5)};
}
void draw_pool(Case& c, bool dilated) {
  Shape x = draw_image(c);
  Pair window, stride, padding, dilation{1, 1};
  const bool up = c.set("ceil_mode", c.draw.chance(0.3));
  for (std::size_t axis = 0; axis < 2; ++axis) {
    std::int64_t& size = x[1 + static_cast<int>(axis)];
    window[axis] = c.draw.size(4, 1);
    stride[axis] = c.draw.size(4, 1);
    padding[axis] = c.draw.integer(0, window[axis] / 2);
    if (dilated) dilation[axis] = c.draw.size(3, 1);
    while (!Axis(size, window[axis], stride[axis], padding[axis], dilation[axis], up).every_window_sees_x())
      ++size;
  }
  c.set("window", window);
  c.set("stride", stride);
  c.set("padding", padding);
  c.set("dilation", dilation);
  // Few different ones: equal maxima.
  if (dilated && c.draw.chance(0.4)) {
    c.give("x", cast(c.draw.tensor(x, DType::i32, {.low = -2, .high = 3}), c.dtype));
  } else {
    c.input("x", x);
  }
}
void draw_max_pool(Case& c) {
  draw_pool(c, true);
  c.set("result", std::string(c.draw.choose({"values", "values", "indices"})));
}
void draw_avg_pool(Case& c) {
  draw_pool(c, false);
  c.set("count_padding", c.draw.chance(0.5));
}
void draw_adaptive(Case& c) {
  c.input("x", draw_image(c));
  c.set("out_h", c.draw.size(7, 1));
  c.set("out_w", c.draw.size(7, 1));
}
void draw_unpool(Case& c) {
  const Shape x = draw_image(c);
  const auto h = c.set("out_h", c.draw.size(9, 1)), w = c.set("out_w", c.draw.size(9, 1));
  c.input("x", x);
  c.give("indices", c.draw.tensor(x, DType::i64, {.low = 0, .high = static_cast<double>(h * w)}));
}

// y = f(the elements of a window that x has, and their places in the image).
template <class F> Array over_windows(const Array& x, const Axis& h, const Axis& w, const F& f) {
  return generate({x.shape[0], h.outputs, w.outputs, x.shape[3]}, [&](const Index& i) {
    std::vector<Var> elements;
    std::vector<std::int64_t> places;
    for (std::int64_t r = 0; r < h.window; ++r) {
      for (std::int64_t s = 0; s < w.window; ++s) {
        const std::int64_t row = h.at(i[1], r), column = w.at(i[2], s);
        if (!h.inside(row) || !w.inside(column)) continue;
        elements.push_back(x.at({i[0], row, column, i[3]}));
        places.push_back(row * x.shape[2] + column);
      }
    }
    return f(i, elements, places);
  });
}

Array max_pool_op(Given& given) {
  const Array x = given.in("x");
  const Axis h(x.shape[1], given, 0), w(x.shape[2], given, 1);
  const bool indices = given.attribute<std::string>("result", "values") == "indices";
  if (indices) given.result = DType::i64;
  return over_windows(x, h, w, [&](const Index&, const auto& elements, const auto& places) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < elements.size() && !std::isnan(elements[best].value()); ++i) {
      if (elements[i].value() > elements[best].value() || std::isnan(elements[i].value())) best = i;
    }
    return indices ? Var(static_cast<Real>(places[best])) : elements[best];
  });
}

Array avg_pool_op(Given& given) {
  const Array x = given.in("x");
  const Axis h(x.shape[1], given, 0), w(x.shape[2], given, 1);
  const bool with_padding = given.attribute("count_padding", true);
  return over_windows(x, h, w, [&](const Index& i, const auto& elements, const auto&) {
    const auto reach = [](const Axis& axis, std::int64_t o) {
      return std::min(axis.at(o, axis.window), axis.inputs + axis.padding) - axis.at(o, 0);
    };
    const auto count = with_padding ? static_cast<Real>(reach(h, i[1]) * reach(w, i[2]))
                                    : static_cast<Real>(elements.size());
    return sum(elements) / Var(count);
  });
}

Array adaptive_op(Given& given) {
  const Array x = given.in("x");
  const Pair out = {given.attribute<std::int64_t>("out_h", 1), given.attribute<std::int64_t>("out_w", 1)};
  return generate({x.shape[0], out[0], out[1], x.shape[3]}, [&](const Index& i) {
    const auto begin = [&](int axis, std::int64_t o) {
      return o * x.shape[axis] / out[static_cast<std::size_t>(axis - 1)];
    };
    const auto end = [&](int axis, std::int64_t o) {
      const std::int64_t outputs = out[static_cast<std::size_t>(axis - 1)];
      return ((o + 1) * x.shape[axis] + outputs - 1) / outputs;
    };
    std::vector<Var> elements;
    for (std::int64_t h = begin(1, i[1]); h < end(1, i[1]); ++h) {
      for (std::int64_t w = begin(2, i[2]); w < end(2, i[2]); ++w)
        elements.push_back(x.at({i[0], h, w, i[3]}));
    }
    return sum(elements) / Var(static_cast<Real>(elements.size()));
  });
}

Array unpool_op(Given& given) {
  const Array x = given.in("x"), indices = given.constant("indices");
  const std::int64_t h = given.attribute<std::int64_t>("out_h", 1),
                     w = given.attribute<std::int64_t>("out_w", 1);
  const Array places = {{x.shape[0], h, w, x.shape[3]}, {}};
  std::vector<std::vector<Var>> terms(static_cast<std::size_t>(places.shape.numel()));
  for_each_index(x.shape, [&](const Index& i) {
    const auto at = static_cast<std::int64_t>(indices.at(i).value());
    terms[places.place({i[0], at / w, at % w, i[3]})].push_back(x.at(i));
  });
  Array y = {places.shape, {}};
  for (const auto& of : terms) y.v.push_back(of.empty() ? Var(0) : sum(of));
  return y;
}

}  // namespace

RandomOps pool_ops() {
  return {
      {"max_pool2d", Types::floating, draw_max_pool, max_pool_op},
      {"avg_pool2d", Types::floating, draw_avg_pool, avg_pool_op},
      {"adaptive_avg_pool2d", Types::floating, draw_adaptive, adaptive_op},
      {"max_unpool2d", Types::floating, draw_unpool, unpool_op},
  };
}

}  // namespace athanor::random_ops
