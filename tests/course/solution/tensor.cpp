#include "tensor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "fast.h"

namespace engine {
namespace {

std::string text(const Shape& shape) {
  std::string result = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) result += (i ? ", " : "") + std::to_string(shape[i]);
  return result + "]";
}

[[noreturn]] void fail(const char* function, const std::string& needs, const Shape& shape) {
  throw std::invalid_argument(std::string(function) + ": " + needs + ", but the shape is " + text(shape));
}

void require_axis(const char* function, std::int64_t axis, const Shape& shape) {
  const bool exists = axis >= 0 && axis < static_cast<std::int64_t>(shape.size());
  if (!exists) fail(function, "axis " + std::to_string(axis) + " must exist", shape);
}

Shape row_major(const Shape& shape) {
  Shape strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) strides[axis] = stride;
  return strides;
}

/// Visits the elements of two tensors of one shape in row-major order: calls f(place in the first, place in
/// the second).
template <typename F> void walk(const Shape& shape, const Shape& a, const Shape& b, F f) {
  Shape index(shape.size(), 0);
  std::int64_t at_a = 0, at_b = 0;
  for (std::int64_t left = numel(shape); left > 0; --left) {
    f(at_a, at_b);
    for (std::size_t axis = shape.size();
         axis-- > 0;) {  // as an odometer counts: the last axis turns fastest
      at_a += a[axis], at_b += b[axis];
      if (++index[axis] < shape[axis]) break;
      at_a -= a[axis] * shape[axis], at_b -= b[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

std::int64_t numel(const Shape& shape) {
  std::int64_t result = 1;
  for (const std::int64_t size : shape) result *= size;
  return result;
}

Tensor::Tensor() : Tensor(Shape{0}) {}

Tensor::Tensor(Shape shape) : shape_(std::move(shape)), strides_(row_major(shape_)) {
  for (const std::int64_t size : shape_)
    if (size < 0) fail("Tensor", "sizes must be 0 or more", shape_);
  memory_ = std::make_shared<std::vector<float>>(static_cast<std::size_t>(numel()));
}

Tensor::Tensor(Shape shape, std::vector<float> values) : Tensor(std::move(shape)) {
  const auto count = static_cast<std::int64_t>(values.size());
  if (count != numel()) fail("Tensor", std::to_string(count) + " values must fill the shape", shape_);
  *memory_ = std::move(values);
}

bool Tensor::is_contiguous() const {
  if (numel() == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t axis = shape_.size(); axis-- > 0; expected *= shape_[axis])
    if (shape_[axis] != 1 && strides_[axis] != expected) return false;
  return true;
}

float* Tensor::data() const {
  return memory_->data() + offset_;
}

float& Tensor::at(const Shape& index) const {
  if (index.size() != shape_.size())
    fail("at", "the index " + text(index) + " must have an entry for each axis", shape_);
  std::int64_t place = 0;
  for (std::size_t axis = 0; axis < index.size(); ++axis) {
    const bool inside = index[axis] >= 0 && index[axis] < shape_[axis];
    if (!inside) fail("at", "the index " + text(index) + " must be inside", shape_);
    place += index[axis] * strides_[axis];
  }
  return data()[place];
}

float Tensor::item() const {
  if (numel() != 1) fail("item", "there must be one element", shape_);
  return *data();
}

std::vector<float> Tensor::values() const {
  const Tensor dense = contiguous();
  return {dense.data(), dense.data() + dense.numel()};
}

Tensor Tensor::transpose(std::int64_t a, std::int64_t b) const {
  require_axis("transpose", a, shape_);
  require_axis("transpose", b, shape_);
  Tensor view = *this;
  std::swap(view.shape_[a], view.shape_[b]);
  std::swap(view.strides_[a], view.strides_[b]);
  return view;
}

Tensor Tensor::narrow(std::int64_t axis, std::int64_t begin, std::int64_t size) const {
  require_axis("narrow", axis, shape_);
  const bool inside = begin >= 0 && size >= 0 && begin <= shape_[axis] - size;
  if (!inside)
    fail("narrow", std::to_string(size) + " elements from " + std::to_string(begin) + " must be there",
         shape_);
  Tensor view = *this;
  view.shape_[axis] = size;
  if (view.numel() > 0) view.offset_ += begin * strides_[axis];
  return view;
}

Tensor Tensor::expand(const Shape& shape) const {
  if (broadcast(shape_, shape) != shape)
    fail("expand", "only axes of size 1 can repeat for " + text(shape), shape_);
  Tensor view = *this;
  view.shape_ = shape;
  view.strides_.assign(shape.size(), 0);
  const std::size_t missing = shape.size() - shape_.size();
  for (std::size_t axis = 0; axis < shape_.size(); ++axis)
    if (shape_[axis] == shape[missing + axis]) view.strides_[missing + axis] = strides_[axis];
  return view;
}

Tensor Tensor::reshape(Shape shape) const {
  const auto unknown = std::find(shape.begin(), shape.end(), -1);
  if (unknown != shape.end()) {
    *unknown = 1;
    const std::int64_t known = engine::numel(shape);
    if (known <= 0 || numel() % known != 0) fail("reshape", "-1 must stand for one whole size", shape_);
    *unknown = numel() / known;
  }
  const bool sizes = std::all_of(shape.begin(), shape.end(), [](std::int64_t size) { return size >= 0; });
  if (!sizes || engine::numel(shape) != numel())
    fail("reshape", text(shape) + " must have as many elements", shape_);
  Tensor view = contiguous();
  view.strides_ = row_major(shape);
  view.shape_ = std::move(shape);
  return view;
}

Tensor Tensor::contiguous() const {
  return is_contiguous() ? *this : clone();
}

Tensor Tensor::clone() const {
  Tensor result(shape_);
  copy(*this, result);
  return result;
}

Shape broadcast(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()));
  for (std::size_t back = 1; back <= result.size(); ++back) {
    const std::int64_t size_a = back <= a.size() ? a[a.size() - back] : 1;
    const std::int64_t size_b = back <= b.size() ? b[b.size() - back] : 1;
    const bool fits = size_a == size_b || size_a == 1 || size_b == 1;
    if (!fits) fail("broadcast", "sizes must be those of " + text(b) + " from the last axis on, or 1", a);
    result[result.size() - back] = size_a == 1 ? size_b : size_a;
  }
  return result;
}

Tensor map(const Tensor& x, const std::function<float(float)>& f) {
  Tensor y(x.shape());
  const float* from = x.data();
  float* to = y.data();
  walk(x.shape(), x.strides(), y.strides(),
       [&](std::int64_t in, std::int64_t out) { to[out] = f(from[in]); });
  return y;
}

Tensor zip(const Tensor& a, const Tensor& b, const std::function<float(float, float)>& f) {
  Tensor y(broadcast(a.shape(), b.shape()));
  const Tensor left = a.expand(y.shape()), right = b.expand(y.shape());
  const float *from_left = left.data(), *from_right = right.data();
  float* to = y.data();
  walk(y.shape(), left.strides(), right.strides(),
       [&](std::int64_t l, std::int64_t r) { *to++ = f(from_left[l], from_right[r]); });
  return y;
}

Tensor sum(const Tensor& x, std::int64_t axis) {
  require_axis("sum", axis, x.shape());
  Shape shape = x.shape();
  shape[axis] = 1;
  return sum_to(x, shape);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  Tensor y(shape);
  std::vector<double> totals(static_cast<std::size_t>(y.numel()));
  const float* from = x.data();
  // Expanded, y has stride 0 where it repeats: there, all elements of x meet the same total.
  walk(x.shape(), x.strides(), y.expand(x.shape()).strides(),
       [&](std::int64_t in, std::int64_t out) { totals[static_cast<std::size_t>(out)] += from[in]; });
  std::transform(totals.begin(), totals.end(), y.data(),
                 [](double total) { return static_cast<float>(total); });
  return y;
}

Tensor max(const Tensor& x, std::int64_t axis) {
  require_axis("max", axis, x.shape());
  if (x.shape()[axis] == 0) fail("max", "axis " + std::to_string(axis) + " must not be empty", x.shape());
  Shape shape = x.shape();
  shape[axis] = 1;
  const Tensor y = map(Tensor(shape), [](float) { return -std::numeric_limits<float>::infinity(); });
  const float* from = x.data();
  float* to = y.data();
  walk(x.shape(), x.strides(), y.expand(x.shape()).strides(), [&](std::int64_t in, std::int64_t out) {
    if (from[in] > to[out] || std::isnan(from[in])) to[out] = from[in];
  });
  return y;
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (a.rank() < 2) fail("matmul", "there must be rows and columns", a.shape());
  Shape expected = a.shape();
  const std::int64_t rows = expected.end()[-2], inner = expected.end()[-1],
                     columns = b.rank() > 0 ? b.shape().back() : 0;
  expected.end()[-2] = inner, expected.end()[-1] = columns;
  // Not by !=, which g++ 14 warns of here.
  if (!std::equal(expected.begin(), expected.end(), b.shape().begin(), b.shape().end()))
    throw std::invalid_argument(
        "matmul: columns on the left must equal rows on the right, and axes before them be equal, but got " +
        text(a.shape()) + " times " + text(b.shape()));
  expected.end()[-2] = rows;

  Tensor y(expected);
  // One after another; a single matrix as it lies, for a product reads any strides.
  const Tensor left = a.rank() == 2 ? a : a.contiguous(), right = b.rank() == 2 ? b : b.contiguous();
  Matrix of_a{left.data(), rows, inner, left.strides().end()[-2], left.strides().end()[-1]};
  Matrix of_b{right.data(), inner, columns, right.strides().end()[-2], right.strides().end()[-1]};
  for (std::int64_t at = 0; at < y.numel(); at += rows * columns) {
    product(of_a, of_b, y.data() + at, columns);
    of_a.data += rows * inner, of_b.data += inner * columns;
  }
  return y;
}

void copy(const Tensor& src, const Tensor& dst) {
  if (src.shape() != dst.shape()) fail("copy", "both shapes must be " + text(dst.shape()), src.shape());
  const float* from = src.data();
  float* to = dst.data();
  walk(src.shape(), src.strides(), dst.strides(),
       [&](std::int64_t in, std::int64_t out) { to[out] = from[in]; });
}

}  // namespace engine
