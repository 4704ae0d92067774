#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

#include "kernels/context.h"

namespace athanor::kernels {

/// A kernel's own layout of weights.
class WeightLayout {
 public:
  virtual ~WeightLayout() = default;
  virtual bool equals(const WeightLayout& other) const = 0;
  virtual std::size_t bytes() const = 0;
  /// Writes dense weights in this layout.
  virtual void fill(const CpuContext& context, const float* weights, void* to) const = 0;
};

/// Constant weights for inference on the CPU: [K, ...] f32, row k times scale[k], and a bias. The first
/// kernel that needs a layout creates it; all threads share it.
class PackedWeights {
 public:
  /// weights [K, ...], bias, scale, shift [K], all dense f32 on the CPU; the last three may be undefined.
  /// Kernels compute y = (w x + bias) scale + shift.
  PackedWeights(const Tensor& weights, const Tensor& bias, const Tensor& scale = {},
                const Tensor& shift = {});
  ~PackedWeights();
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  const Shape& shape() const { return weights_.shape(); }
  /// bias scale + shift, [K] f32; undefined where it is zero.
  const Tensor& bias() const { return bias_; }
  /// The weights in that layout, valid as long as this object.
  const std::byte* in(const CpuContext& context, const std::shared_ptr<const WeightLayout>& layout) const;
  /// The original weights times scale.
  Tensor plain() const;
  /// False if the weights were written to since.
  bool are_current() const { return weights_.version() == version_; }

 private:
  struct Copy;

  const Copy* find(const WeightLayout* layout) const;
  const Copy* make(const CpuContext& context, const std::shared_ptr<const WeightLayout>& layout) const;
  Tensor scaled() const;

  Tensor weights_, scale_, bias_;
  std::uint32_t version_;
  mutable std::mutex making_;
  mutable std::atomic<const Copy*> copies_{nullptr};  // a list; the owner of making_ prepends to it
};

}  // namespace athanor::kernels
