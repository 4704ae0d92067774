#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/context.h"
#include "kernels/detail/growing_list.h"

namespace athanor::kernels {

/// A kernel's own layout of 8-bit weights.
class Int8Layout {
 public:
  virtual ~Int8Layout() = default;
  virtual bool equals(const Int8Layout& other) const = 0;
  virtual std::size_t bytes() const = 0;
  /// Writes dense weights [K, R, S, C / groups] in this layout, with whatever the kernel derives from them.
  virtual void fill(const std::int8_t* weights, std::byte* to) const = 0;
};

/// Constant weights of a product of 8-bit integers, [K, R, S, C / groups]; of a matrix [K, 1, 1, C]. All
/// threads share them. On the CPU a kernel that needs another layout makes it once.
class Int8Weights {
 public:
  /// weights i8 [K, R, S, C / groups], multiplier f32 [K], bias i32 [K] in units of the products; dense, on
  /// one device. The bias includes what the zero of x adds: - zero times the sum of the channel's weights.
  /// Throws ArgumentError on other shapes or dtypes.
  Int8Weights(const Tensor& weights, const Tensor& multiplier, const Tensor& bias);
  Int8Weights(const Int8Weights&) = delete;
  Int8Weights& operator=(const Int8Weights&) = delete;

  const Shape& shape() const { return weights_.shape(); }
  const Tensor& weights() const { return weights_; }
  const Tensor& multiplier() const { return multiplier_; }
  const Tensor& bias() const { return bias_; }
  /// The weights in that layout, valid as long as this object; made by the first call.
  const std::byte* in(const std::shared_ptr<const Int8Layout>& layout) const;

 private:
  struct Copy {
    std::shared_ptr<const Int8Layout> layout;
    Tensor values;
  };

  Tensor weights_, multiplier_, bias_;
  mutable GrowingList<Copy> copies_;
};

}  // namespace athanor::kernels
