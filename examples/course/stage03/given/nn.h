#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd.h"

namespace engine {

/// A part of a network: parameters with names, and a forward pass.
class Module {
 public:
  virtual ~Module() = default;
  virtual Variable forward(const Variable& x) = 0;
  /// Everything that training changes, in a fixed order; names are those of members, joined by dots.
  virtual std::vector<std::pair<std::string, Variable>> parameters() const { return {}; }
  /// What is not trained but belongs to the network's state, such as running statistics.
  virtual std::vector<std::pair<std::string, Tensor>> buffers() const { return {}; }
  /// Training and evaluation differ for some layers.
  virtual void train(bool on) { training_ = on; }
  bool training() const { return training_; }

 private:
  bool training_ = true;
};

/// y = x W^T + b: x [n, in] or [n, t, in], W "weight" [out, in], b "bias" [out]. W is normal with deviation
/// sqrt(2 / in), from seed; b is 0.
class Linear final : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, std::uint64_t seed);
  Variable forward(const Variable& x) override;
  std::vector<std::pair<std::string, Variable>> parameters() const override;

 private:
  Variable weight_, bias_;
};

/// The cross-correlation of images x [n, c, h, w] with "weight" [k, c, r, r], plus "bias" [k]: y [n, k, oh,
/// ow], oh = (h + 2 padding - r) / stride + 1. weight is normal with deviation sqrt(2 / (c r r)); bias
/// is 0.
class Conv2d final : public Module {
 public:
  struct Options {
    std::int64_t stride = 1, padding = 0;
  };
  Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, Options options, std::uint64_t seed);
  Variable forward(const Variable& x) override;
  std::vector<std::pair<std::string, Variable>> parameters() const override;

 private:
  Variable weight_, bias_;
  Options options_;
};

/// Batch norm of x [n, c, h, w] over n, h and w: "weight" [c] starts at 1, "bias" [c] at 0. Training uses the
/// batch's mean and biased variance, and moves the buffers "running_mean" and "running_var" (unbiased) a
/// tenth of the way, under NoGrad, too; evaluation uses those. eps = 1e-5.
class BatchNorm2d final : public Module {
 public:
  explicit BatchNorm2d(std::int64_t channels);
  Variable forward(const Variable& x) override;
  std::vector<std::pair<std::string, Variable>> parameters() const override;
  std::vector<std::pair<std::string, Tensor>> buffers() const override;

 private:
  Variable weight_, bias_;
  Tensor running_mean_, running_var_;
};

class ReLU final : public Module {
 public:
  Variable forward(const Variable& x) override;
};

/// The largest of each square of `size` x `size` pixels, without overlap; rows and columns that do not fill
/// one are left out, but one square must fit. Equal values: the first. NaN is larger than any number.
class MaxPool2d final : public Module {
 public:
  explicit MaxPool2d(std::int64_t size) : size_(size) {}
  Variable forward(const Variable& x) override;

 private:
  std::int64_t size_;
};

/// [n, ...] as [n, the rest].
class Flatten final : public Module {
 public:
  Variable forward(const Variable& x) override;
};

/// Layers one after another, named "0", "1" and so on.
class Sequential final : public Module {
 public:
  explicit Sequential(std::vector<std::shared_ptr<Module>> layers);
  Variable forward(const Variable& x) override;
  std::vector<std::pair<std::string, Variable>> parameters() const override;
  std::vector<std::pair<std::string, Tensor>> buffers() const override;
  void train(bool on) override;

 private:
  std::vector<std::shared_ptr<Module>> layers_;
};

/// Image patches as rows, for a convolution by a matrix product: x [n, c, h, w] to [n oh ow, c r r], zeros
/// outside the image.
Variable im2col(const Variable& x, std::int64_t kernel, std::int64_t stride, std::int64_t padding);

/// Logarithms of the softmax along the last axis. Nothing overflows: finite wherever a float can hold the
/// result.
Variable log_softmax(const Variable& x);
/// The mean of -log softmax(logits)[label], of shape {}; logits [n, classes] with n >= 1, labels in [0,
/// classes).
Variable cross_entropy(const Variable& logits, const std::vector<int>& labels);
/// The mean of squared differences, of shape {}. The shapes are equal: nothing is broadcast.
Variable mse(const Variable& x, const Variable& target);

}  // namespace engine
