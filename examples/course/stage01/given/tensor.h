#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace engine {

using Shape = std::vector<std::int64_t>;

/// The product of the sizes; 1 for {}.
std::int64_t numel(const Shape& shape);

/// Numbers in float, found by strides in memory that several tensors may share. Copying a Tensor copies the
/// view, not the numbers. Invalid arguments throw std::invalid_argument, whose text names the function, what
/// it was given and what it needs. Axes count from 0; negative ones are refused.
class Tensor {
 public:
  /// No elements: shape {0}.
  Tensor();
  /// Zeros in row-major order. Sizes are 0 or more.
  explicit Tensor(Shape shape);
  /// The values in row-major order: as many as the shape has.
  Tensor(Shape shape, std::vector<float> values);

  const Shape& shape() const { return shape_; }
  /// How many numbers in memory lie between neighbours of each axis; 0 on an axis that was expanded.
  const Shape& strides() const { return strides_; }
  std::int64_t rank() const { return static_cast<std::int64_t>(shape_.size()); }
  std::int64_t numel() const { return engine::numel(shape_); }
  /// Whether row-major order is the order in memory, without gaps. Strides of axes of size 1 do not count.
  bool is_contiguous() const;
  bool shares_memory_with(const Tensor& other) const { return memory_ == other.memory_; }

  /// The first element. The others follow it in row-major order only if is_contiguous().
  float* data() const;
  /// One element; index has rank() entries.
  float& at(const Shape& index) const;
  /// The only element of a tensor that has one, of any rank.
  float item() const;
  /// All elements in row-major order.
  std::vector<float> values() const;

  // Views: they share memory, and move no number.
  /// Two axes exchanged.
  Tensor transpose(std::int64_t a, std::int64_t b) const;
  /// size elements of an axis, from begin.
  Tensor narrow(std::int64_t axis, std::int64_t begin, std::int64_t size) const;
  /// A view of shape `shape`, which the rule of broadcasting allows: the last axes are aligned; an axis that
  /// is missing in front, or that has size 1, repeats.
  Tensor expand(const Shape& shape) const;

  /// Another shape with as many elements. One of the sizes may be -1: it is computed from the others, none of
  /// which may be 0 then. A view of a contiguous tensor; of any other a copy.
  Tensor reshape(Shape shape) const;
  /// This tensor if it is contiguous, otherwise a copy that is.
  Tensor contiguous() const;
  /// A contiguous copy, always.
  Tensor clone() const;

 private:
  std::shared_ptr<std::vector<float>> memory_;
  std::int64_t offset_ = 0;
  Shape shape_, strides_;
};

/// The shape of two operands together: aligned at the last axis, sizes equal or one of them 1.
Shape broadcast(const Shape& a, const Shape& b);

/// f of every element, in a new contiguous tensor.
Tensor map(const Tensor& x, const std::function<float(float)>& f);
/// f of every pair of elements of two tensors that broadcast.
Tensor zip(const Tensor& a, const Tensor& b, const std::function<float(float, float)>& f);

/// The sum over one axis, which the result keeps with size 1. Summed in double.
Tensor sum(const Tensor& x, std::int64_t axis);
/// The sum of x over all that broadcasting from `shape` to x's shape repeats: the result has shape `shape`.
Tensor sum_to(const Tensor& x, const Shape& shape);
/// The largest element along one axis. The result keeps the axis with size 1. An axis of size 0 has no
/// largest element and is refused; the other axes may have size 0. A NaN is larger than any number.
Tensor max(const Tensor& x, std::int64_t axis);

/// [..., m, k] times [..., k, n] = [..., m, n]; the axes before the last two are equal. Each element is
/// summed in the order of k, in float. With k = 0 the result is zero.
Tensor matmul(const Tensor& a, const Tensor& b);

/// dst = src, element by element; shapes are equal. The two may be views of one memory as long as they do not
/// overlap, which is not checked.
void copy(const Tensor& src, const Tensor& dst);

}  // namespace engine
