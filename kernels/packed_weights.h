#pragma once

#include <cstddef>
#include <memory>

#include "kernels/context.h"
#include "kernels/detail/growing_list.h"

namespace athanor::kernels {

/// A kernel's own layout of weights.
class WeightLayout {
 public:
  virtual ~WeightLayout() = default;
  virtual bool equals(const WeightLayout& other) const = 0;
  virtual std::size_t bytes() const = 0;
  /// Writes dense weights in this layout, rounded if it is of a half type.
  virtual void fill(const CpuContext& context, const float* weights, void* to) const = 0;
};

/// Constant weights for inference on the CPU: [K, ...], row k times scale[k], and a bias. The first kernel
/// that needs a layout creates it; all threads share it.
class PackedWeights {
 public:
  /// weights [K, ...], bias, scale, shift [K], all dense f32 on the CPU; the last three may be undefined.
  /// Kernels compute y = (w x + bias) scale + shift for x and y of `dtype`, f32 or bf16. What they multiply
  /// is rounded to it at most once, after scaling; the bias never.
  PackedWeights(const Tensor& weights, const Tensor& bias, const Tensor& scale = {}, const Tensor& shift = {},
                DType dtype = DType::f32);
  ~PackedWeights();
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  const Shape& shape() const { return weights_.shape(); }
  /// bias scale + shift, [K] f32; undefined where it is zero.
  const Tensor& bias() const { return bias_; }
  /// The weights in that layout, valid as long as this object.
  const std::byte* in(const CpuContext& context, const std::shared_ptr<const WeightLayout>& layout) const;
  /// The original weights times scale, of `dtype`.
  Tensor plain() const;
  /// bias() of `dtype`.
  const Tensor& plain_bias() const { return plain_bias_; }

 private:
  struct Copy;

  /// Their values in that layout, made by the first call; null: the original layout.
  const Tensor& copy(const CpuContext& context, const std::shared_ptr<const WeightLayout>& layout) const;
  Tensor scaled() const;

  DType dtype_;
  Tensor weights_, scale_, bias_, plain_bias_;
  mutable GrowingList<Copy> copies_;
};

}  // namespace athanor::kernels
