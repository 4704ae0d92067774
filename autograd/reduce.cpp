#include "autograd/reduce.h"

#include <algorithm>
#include <limits>

#include "autograd/compare.h"
#include "autograd/detail/affine.h"
#include "autograd/detail/dense.h"
#include "autograd/elementwise.h"
#include "autograd/node.h"
#include "autograd/shape.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "kernels/extremum.h"
#include "kernels/on_device.h"
#include "kernels/reduce.h"

namespace athanor {
namespace {

// x's shape with the reduced axes at 1, and without them; and the number of elements per sum.
struct Reduced {
  Shape kept, dropped;
  std::int64_t count = 1;
  unsigned axes = 0;  // bit i: axis i is reduced

  const Shape& result(bool keepdim) const { return keepdim ? kept : dropped; }
};

Reduced reduced(const char* op, const Tensor& x, std::span<const int> axes) {
  check_floating(op, x);
  unsigned named = axes.empty() ? ~0u : 0u;
  for (const int axis : axes) {
    const unsigned bit = 1u << normalize_axis(axis, x.rank(), op);
    ATH_CHECK(!(named & bit), "{}: axes must be unique, but {} appears twice", op, axis);
    named |= bit;
  }
  Reduced shapes;
  shapes.axes = named;
  for (int i = 0; i < x.rank(); ++i) {
    const std::int64_t size = x.shape()[i];
    if (named >> i & 1u) {
      shapes.kept.push_back(1);
      shapes.count *= size;
    } else {
      shapes.kept.push_back(size);
      shapes.dropped.push_back(size);
    }
  }
  return shapes;
}

// The same elements in another shape, for a dense x outside the graph.
Tensor viewed(const Tensor& x, const Shape& shape) {
  return x.shape() == shape ? x : x.view_as_strided(shape, contiguous_strides(shape), 0);
}

// Broadcasts dy, without its reduced axes or with them at 1, to `shape`: a view.
Tensor repeated(const Tensor& dy, const Shape& shape, unsigned axes) {
  const bool keepdim = dy.rank() == shape.rank();
  Strides strides = shape;
  for (int i = 0, own = 0; i < shape.rank(); ++i) {
    const bool is_reduced = axes >> i & 1u;
    strides[i] = is_reduced ? 0 : dy.strides()[own];
    own += keepdim || !is_reduced;
  }
  return dy.view_as_strided(shape, strides, 0);
}

Tensor scaled_sum(const Tensor& x, const Reduced& shapes, bool keepdim, double scale) {
  const Tensor y = Tensor::empty(shapes.result(keepdim), x.options());
  on_device(x.device(), [&](auto& context) { kernels::sum(context, x, viewed(y, shapes.kept), scale); });
  return y;
}

struct Extremum {
  int axis;
  Tensor values, index;
};

// Values and indices along an axis, as selected by with_values and with_index.
Extremum extremum(const char* op, const Tensor& x, int axis, bool keepdim, bool with_values,
                  bool with_index) {
  const int positive = normalize_axis(axis, x.defined() ? x.rank() : 0, op);
  const Reduced shapes = reduced(op, x, {&positive, 1});
  ATH_CHECK(x.shape()[positive] > 0, "{}: axis {} must hold at least one element, but the shape is {}", op,
            axis, x.shape());
  Extremum found{positive, {}, {}};
  const Shape& shape = shapes.result(keepdim);
  if (with_values) found.values = Tensor::empty(shape, x.options());
  if (with_index) found.index = Tensor::empty(shape, {DType::i64, x.device()});
  on_device(x.device(),
            [&](auto& context) { kernels::max(context, dense(x), positive, found.values, found.index); });
  return found;
}

// The largest of all values, and its index in row-major order; values and index are scalars, and either may
// be undefined.
void extremum_of_all(const char* op, const Tensor& x, const Tensor& values, const Tensor& index) {
  ATH_CHECK(x.numel() > 0, "{}: tensor must hold at least one element, but the shape is {}", op, x.shape());
  const Tensor flat = viewed(dense(x.detach()), {x.numel()});
  on_device(x.device(), [&](auto& context) { kernels::max(context, flat, 0, values, index); });
}

Tensor sum_over(const Tensor& x, const Reduced& shapes, bool keepdim) {
  return record({"sum", {{"axes", {shapes.axes}}}}, scaled_sum(x, shapes, keepdim, 1), {x},
                [shape = x.shape(), axes = shapes.axes](const Tensor& dy, Grads& dx) {
                  dx[0] = repeated(dy, shape, axes);
                });
}

// Counts the true elements: a sum of ones is 0 only if there are none.
Tensor any_of(const char* op, const Tensor& condition, std::span<const int> axes, bool keepdim) {
  const Tensor ones = cast(condition, DType::f32);
  return ne(sum_over(ones, reduced(op, ones, axes), keepdim), 0);
}

}  // namespace

Tensor sum(const Tensor& x, std::span<const int> axes, bool keepdim) {
  return sum_over(x, reduced("sum", x, axes), keepdim);
}

Tensor mean(const Tensor& x, std::span<const int> axes, bool keepdim) {
  const Reduced shapes = reduced("mean", x, axes);
  const double scale = 1 / static_cast<double>(shapes.count);
  return record({"mean", {{"axes", {shapes.axes}}}}, scaled_sum(x, shapes, keepdim, scale), {x},
                [shape = x.shape(), axes = shapes.axes, scale](const Tensor& dy, Grads& dx) {
                  dx[0] = repeated(detail::affine(dy, scale), shape, axes);
                });
}

Tensor var(const Tensor& x, std::span<const int> axes, int correction, bool keepdim) {
  const Reduced shapes = reduced("var", x, axes);
  const double scale = 1 / std::max(0.0, static_cast<double>(shapes.count - correction));
  const DType accumulate = wide_dtype(x);
  const Tensor center = Tensor::empty(shapes.kept, {accumulate, x.device()});
  const Tensor y = Tensor::empty(shapes.result(keepdim), x.options());
  on_device(x.device(), [&](auto& context) {
    kernels::sum(context, x, center, 1 / static_cast<double>(shapes.count));
    kernels::squared_deviation(context, x, center, viewed(y, shapes.kept), scale);
  });
  const double freedom = static_cast<double>(shapes.count - correction);
  const bool undefined = freedom <= 0 && (axes.empty() || x.rank() == 0);
  return record({"var", {{"axes", {shapes.axes}}, {"correction", {correction}}}}, y, {x},
                [x = Saved(x), center, freedom, undefined](const Tensor& dy, Grads& dx) {
                  const Tensor& input = x;
                  const Tensor slope = undefined ? Tensor::empty(center.shape(), dy.options())
                                                 : viewed(dense(dy), center.shape());
                  const double scale_dx = undefined ? std::numeric_limits<double>::infinity() : 2 / freedom;
                  dx[0] = empty_like(input);
                  on_device(dy.device(), [&](auto& context) {
                    if (undefined) kernels::fill(context, slope, 1);
                    kernels::squared_deviation_backward(context, input, center, slope, dx[0], scale_dx);
                  });
                  if (undefined) dx[0] = abs(dx[0]) * dy;
                });
}

Tensor max(const Tensor& x, int axis, bool keepdim) {
  const Extremum found = extremum("max", x, axis, keepdim, true, grad_enabled() && x.requires_grad());
  return record({"max", {{"axes", {1u << found.axis}}}}, found.values, {x},
                [shape = x.shape(), axis = found.axis, index = found.index](const Tensor& dy, Grads& dx) {
                  dx[0] = Tensor::empty(shape, dy.options());
                  on_device(dy.device(), [&](auto& context) {
                    kernels::max_backward(context, index, dense(dy), axis, dx[0]);
                  });
                });
}

Tensor argmax(const Tensor& x, int axis, bool keepdim) {
  const Extremum found = extremum("argmax", x, axis, keepdim, false, true);
  return record({"argmax", {{"axes", {1u << found.axis}}}}, found.index, {x});
}

Tensor max(const Tensor& x) {
  check_floating("max", x);
  const Tensor y = Tensor::empty({}, x.options());
  extremum_of_all("max", x, y, {});
  return record(
      {"max", {{"axes", {~0u}}}}, y, {x}, [x = Saved(x), y = Saved::output(y)](const Tensor& dy, Grads& dx) {
        const Tensor largest = logical_or(eq(x, y), logical_and(ne(x, x), ne(y, y)));  // NaN is not NaN
        const DType wide = wide_dtype(dy);
        const Tensor share = cast(cast(dy, wide) / sum(cast(largest, wide)), dy.dtype());
        dx[0] = where(largest, share, Tensor::zeros({}, dy.options()));
      });
}

Tensor argmax(const Tensor& x) {
  check_floating("argmax", x);
  const Tensor index = Tensor::empty({}, {DType::i64, x.device()});
  extremum_of_all("argmax", x, {}, index);
  return record({"argmax", {{"axes", {~0u}}}}, index, {x});
}

Tensor any(const Tensor& x, std::span<const int> axes, bool keepdim) {
  ATH_CHECK(x.defined(), "any: tensor must be defined, but is not");
  return any_of("any", cast(x.detach(), DType::boolean), axes, keepdim);
}

Tensor all(const Tensor& x, std::span<const int> axes, bool keepdim) {
  ATH_CHECK(x.defined(), "all: tensor must be defined, but is not");
  return logical_not(any_of("all", logical_not(x), axes, keepdim));
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  ATH_CHECK(broadcasts_to(shape, x.shape()), "sum_to: the shape must broadcast to {}, but is {}", x.shape(),
            shape);
  const Tensor y = Tensor::empty(shape, x.options());
  Shape kept = x.shape();
  const int shift = x.rank() - shape.rank();
  for (int i = 0; i < x.rank(); ++i) kept[i] = i < shift ? 1 : shape[i - shift];
  on_device(x.device(), [&](auto& context) { kernels::sum(context, x, viewed(y, kept)); });
  return y;
}

}  // namespace athanor
