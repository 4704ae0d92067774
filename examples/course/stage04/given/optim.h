#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nn.h"

namespace engine {

using Parameters = std::vector<std::pair<std::string, Variable>>;

/// Changes parameters by their gradients. A parameter without a gradient stays as it is.
class Optimizer {
 public:
  explicit Optimizer(Parameters parameters) : parameters_(std::move(parameters)) {}
  virtual ~Optimizer() = default;
  virtual void step(float lr) = 0;
  void clear_grads() const;
  const Parameters& parameters() const { return parameters_; }
  /// Everything a continued run needs: one tensor per name, such as "0.weight.momentum", and "steps" of shape
  /// {}, which counts calls of step(). Assigning through the tensors changes the optimizer.
  virtual std::vector<std::pair<std::string, Tensor>> state() const = 0;

 protected:
  Parameters parameters_;
};

/// v = momentum v + (g + weight_decay p); p = p - lr v. As in PyTorch: v begins with the first gradient.
class SGD final : public Optimizer {
 public:
  struct Options {
    float momentum = 0.9f, weight_decay = 0;
  };
  SGD(Parameters parameters, Options options);
  void step(float lr) override;
  std::vector<std::pair<std::string, Tensor>> state() const override;

 private:
  Options options_;
  std::vector<Tensor> momentum_;
  Tensor steps_;
};

/// AdamW: decay apart from the gradient, moments corrected for their start at zero. They are "NAME.mean" and
/// "NAME.square" in state().
class AdamW final : public Optimizer {
 public:
  struct Options {
    float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0.01f;
  };
  AdamW(Parameters parameters, Options options);
  void step(float lr) override;
  std::vector<std::pair<std::string, Tensor>> state() const override;

 private:
  Options options_;
  std::vector<Tensor> mean_, square_;
  Tensor steps_;
};

/// From 0 up to `peak` over `warmup` steps, then down to 0 at `steps` along half a cosine. step counts from
/// 0.
float cosine_rate(float peak, std::int64_t step, std::int64_t warmup, std::int64_t steps);

/// Scales all gradients so that their norm, over all parameters together, is at most `most`; returns the norm
/// before. Does not scale if the norm is not finite.
float clip_grad_norm(const Parameters& parameters, float most);

/// Images [n, c, h, w] and their classes.
struct Dataset {
  Tensor images;
  std::vector<int> labels;
  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
};
/// The digits, 8 x 8 grey, in [0, 1], from the file that the course gives; the first 1,437 are for training.
/// Throws std::runtime_error that names the file if it is not there, or if a line is anything else than 64
/// pixels from 0 to 16 and a digit.
Dataset read_digits(const std::string& path, bool training);

/// 0 .. n - 1, shuffled: for i = n - 1 down to 1, order[i] is exchanged with order[j], where j is
/// random_bits(random_bits(seed, epoch), i + 1) % (i + 1). It depends on seed and epoch alone.
std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch);
/// The samples at order[begin .. begin + size).
Dataset batch_of(const Dataset& data, const std::vector<std::int64_t>& order, std::int64_t begin,
                 std::int64_t size);

/// The share of images whose largest logit is their label's, without recording.
double accuracy(Module& network, const Dataset& data);

struct FitOptions {
  std::int64_t epochs = 10, batch_size = 32, warmup = 0;
  float lr = 0.1f;
  std::uint64_t seed = 1;
};
/// Trains; a last batch that is not full is left out. The mean loss of each epoch.
std::vector<double> fit(Module& network, Optimizer& optimizer, const Dataset& data,
                        const FitOptions& options);

}  // namespace engine
