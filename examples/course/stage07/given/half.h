#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "optim.h"

namespace engine {

/// How numbers are stored. Whatever it is, sums and products are computed in float.
enum class Precision { f32, bf16, f16 };

/// The number nearest to x, as its sixteen bits; of two equally near, the one whose last bit is 0. What is
/// beyond the largest number by half a step or more becomes infinity; a NaN stays one, with its sign. f16 has
/// 1 bit of sign, 5 of exponent, 10 of fraction; bf16 1, 8, 7.
std::uint16_t to_f16(float x);
std::uint16_t to_bf16(float x);
/// The number that these bits stand for: exact.
float from_f16(std::uint16_t bits);
float from_bf16(std::uint16_t bits);

/// Every element rounded to `precision`, in new memory; for f32 x itself.
Tensor round_to(const Tensor& x, Precision precision);
/// The same on the tape: x as it is after it was stored. The gradient, which is stored, too, is rounded like
/// the value.
Variable round_to(const Variable& x, Precision precision);

/// A layer that reads and writes numbers of `precision`, and computes in float between: input and output are
/// rounded, and so are their gradients. Its parameters, buffers and mode are those of the layer, under the
/// same names.
class Rounded final : public Module {
 public:
  Rounded(std::shared_ptr<Module> layer, Precision precision)
      : layer_(std::move(layer)), precision_(precision) {}
  Variable forward(const Variable& x) override;
  std::vector<std::pair<std::string, Variable>> parameters() const override;
  std::vector<std::pair<std::string, Tensor>> buffers() const override;
  void train(bool on) override;

 private:
  std::shared_ptr<Module> layer_;
  Precision precision_;
};

/// Every parameter twice: the network's own, rounded, which forward and backward pass read; and a master in
/// f32, which the optimizer changes. Both have one name.
class MasterWeights {
 public:
  /// The masters begin with the network's values, which are then rounded. The network's gradients are
  /// cleared.
  MasterWeights(const Module& network, Precision precision);
  /// The masters: leaves that require a gradient. An optimizer is made of these.
  const Parameters& parameters() const { return masters_; }
  /// Replaces the masters' gradients by the network's, rounded, for those are stored in `precision`; then the
  /// network's are cleared. A parameter without a gradient leaves its master without one.
  void take_gradients();
  /// Copies the masters' values, rounded, into the network's.
  void give_values();

 private:
  Parameters network_, masters_;
  Precision precision_;
};

/// Chooses the factor by which the loss is multiplied, so that small gradients do not become 0 in f16 and
/// large ones do not overflow. A step: backward(loss, scaler.scale()), unscale(), clip if you like, step().
class LossScaler {
 public:
  struct Options {
    float initial = 65536, growth = 2, backoff = 0.5f, floor = 1, ceiling = 0x1p24f;
    /// The scale grows after so many applied steps in a row.
    std::int64_t growth_interval = 2000;
  };
  explicit LossScaler(const Options& options);

  float scale() const { return scale_.item(); }
  /// Divides every gradient by the scale. Returns whether all were finite before. Throws std::logic_error if
  /// it was called since the last step().
  bool unscale(const Parameters& parameters);
  /// If all gradients were finite, the optimizer's step; otherwise nothing but a smaller scale. Returns
  /// whether the step was applied. Throws std::logic_error unless unscale() was called before.
  bool step(Optimizer& optimizer, float lr);
  /// "scale" and "applied" (steps in a row), of shape {}. Assigning through the tensors changes the scaler.
  std::vector<std::pair<std::string, Tensor>> state() const {
    return {{"scale", scale_}, {"applied", applied_}};
  }

 private:
  Options options_;
  Tensor scale_, applied_;
  bool unscaled_ = false, finite_ = true;
};

struct MixedStep {
  double loss = 0;  // not scaled
  bool applied = false;
};
/// One step of training: the scaled loss's gradients, brought to the masters, unscaled, clipped to a norm of
/// `clip_norm`, applied unless one is not finite. Afterwards neither masters nor network have gradients, and
/// the network has the masters' values, rounded. The loss itself is computed in float. Buffers stay as the
/// forward pass left them, also in a step that is skipped.
MixedStep mixed_step(Module& network, MasterWeights& masters, Optimizer& optimizer, LossScaler& scaler,
                     const Dataset& batch, float lr,
                     float clip_norm = std::numeric_limits<float>::infinity());

struct MixedReport {
  std::vector<double> losses;  // the mean of each epoch's
  std::int64_t skipped = 0;
};
/// fit() by mixed steps: it refuses what that refuses. The learning rate's schedule counts applied steps
/// only; the losses are of all steps.
MixedReport fit_mixed(Module& network, MasterWeights& masters, Optimizer& optimizer, LossScaler& scaler,
                      const Dataset& data, const FitOptions& options);

}  // namespace engine
