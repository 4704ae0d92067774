#include "half.h"

#include <bit>
#include <cmath>
#include <stdexcept>

namespace engine {

namespace {

constexpr std::uint32_t kInfinity = 0x7f80'0000;  // of a float; what is larger, without the sign, is a NaN

// x / 2^shift as an integer: the nearest, and of two equally near the even one.
std::uint32_t shift_to_even(std::uint32_t x, int shift) {
  const std::uint32_t last = (x >> shift) & 1;
  return (x + (1u << (shift - 1)) - 1 + last) >> shift;
}

float stored(float x, Precision precision) {
  if (precision == Precision::f32) return x;
  return precision == Precision::f16 ? from_f16(to_f16(x)) : from_bf16(to_bf16(x));
}

}  // namespace

std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x))
    return static_cast<std::uint16_t>(bits >> 16 | 0x40);  // a bit of the fraction must remain
  return static_cast<std::uint16_t>(shift_to_even(bits, 16));
}

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t to_f16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fff'ffff;
  const auto with_sign = [&](std::uint32_t rest) { return static_cast<std::uint16_t>(sign | rest); };
  if (size > kInfinity) return with_sign(0x7e00);
  if (size >= 0x4780'0000) return with_sign(0x7c00);  // 2^16: the exponent has no such number
  // Exponents are stored with 127 added in a float, with 15 in f16. A carry out of the fraction raises the
  // exponent, to infinity at last.
  if (size >= 0x3880'0000) return with_sign(shift_to_even(size - (112u << 23), 13));
  // Below 2^-14: a multiple of 2^-24. The float is significand * 2^(exponent - 150).
  const int exponent = static_cast<int>(size >> 23);
  const std::uint32_t significand = (size & 0x7f'ffff) | 0x80'0000;
  return with_sign(126 - exponent > 24 ? 0 : shift_to_even(significand, 126 - exponent));
}

float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  if (exponent == 0)
    return std::copysign(static_cast<float>(fraction) * 0x1p-24f, std::bit_cast<float>(sign));
  return std::bit_cast<float>(sign | (exponent == 31 ? kInfinity : (exponent + 112) << 23) | fraction << 13);
}

Tensor round_to(const Tensor& x, Precision precision) {
  if (precision == Precision::f32) return x;
  return map(x, [precision](float value) { return stored(value, precision); });
}

Variable round_to(const Variable& x, Precision precision) {
  if (precision == Precision::f32) return x;
  return record(round_to(x.value(), precision), {x},
                [precision](const Tensor& dy) { return std::vector<Tensor>{round_to(dy, precision)}; });
}

Variable Rounded::forward(const Variable& x) {
  return round_to(layer_->forward(round_to(x, precision_)), precision_);
}

std::vector<std::pair<std::string, Variable>> Rounded::parameters() const {
  return layer_->parameters();
}

std::vector<std::pair<std::string, Tensor>> Rounded::buffers() const {
  return layer_->buffers();
}

void Rounded::train(bool on) {
  Module::train(on);
  layer_->train(on);
}

MasterWeights::MasterWeights(const Module& network, Precision precision)
    : network_(network.parameters()), precision_(precision) {
  for (const auto& [name, parameter] : network_) {
    masters_.emplace_back(name, Variable(parameter.value().clone(), true));
    parameter.clear_grad();
  }
  give_values();
}

void MasterWeights::take_gradients() {
  for (std::size_t i = 0; i < network_.size(); ++i) {
    const Variable &parameter = network_[i].second, &master = masters_[i].second;
    if (parameter.grad().numel() == 0)
      master.clear_grad();
    else
      master.grad() = round_to(parameter.grad(), precision_);
    parameter.clear_grad();
  }
}

void MasterWeights::give_values() {
  for (std::size_t i = 0; i < network_.size(); ++i)
    copy(round_to(masters_[i].second.value(), precision_), network_[i].second.value());
}

LossScaler::LossScaler(const Options& options)
    : options_(options), scale_({}, {options.initial}), applied_({}, {0}) {}

bool LossScaler::unscale(const Parameters& parameters) {
  if (unscaled_)
    throw std::logic_error("unscale: the gradients are unscaled already; call step() before the next time");
  unscaled_ = finite_ = true;
  for (const auto& [name, parameter] : parameters) {
    Tensor& gradient = parameter.grad();
    gradient = map(gradient, [&](float g) {
      finite_ = finite_ && std::isfinite(g);
      return g / scale();
    });
  }
  return finite_;
}

bool LossScaler::step(Optimizer& optimizer, float lr) {
  if (!unscaled_)
    throw std::logic_error("step: the gradients are still those of the scaled loss; call unscale() before");
  unscaled_ = false;
  float &scale = scale_.at({}), &applied = applied_.at({});
  if (!finite_) {
    scale = std::fmax(options_.floor, scale * options_.backoff);
    applied = 0;
    return false;
  }
  optimizer.step(lr);
  if (++applied >= static_cast<float>(options_.growth_interval)) {
    scale = std::fmin(options_.ceiling, scale * options_.growth);
    applied = 0;
  }
  return true;
}

MixedStep mixed_step(Module& network, MasterWeights& masters, Optimizer& optimizer, LossScaler& scaler,
                     const Dataset& batch, float lr, float clip_norm) {
  const Variable loss = cross_entropy(network.forward(Variable(batch.images)), batch.labels);
  backward(loss, scaler.scale());
  masters.take_gradients();
  if (scaler.unscale(masters.parameters())) clip_grad_norm(masters.parameters(), clip_norm);
  const bool applied = scaler.step(optimizer, lr);
  optimizer.clear_grads();
  if (applied) masters.give_values();
  return {loss.value().item(), applied};
}

MixedReport fit_mixed(Module& network, MasterWeights& masters, Optimizer& optimizer, LossScaler& scaler,
                      const Dataset& data, const FitOptions& options) {
  const std::int64_t batches = data.size() / options.batch_size, steps = options.epochs * batches;
  if (batches == 0)
    throw std::invalid_argument("fit_mixed: the data must fill one batch of " +
                                std::to_string(options.batch_size));
  MixedReport report;
  std::int64_t applied = 0;
  network.train(true);
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    const auto order = epoch_order(data.size(), options.seed, epoch);
    double sum = 0;
    for (std::int64_t b = 0; b < batches; ++b) {
      const Dataset batch = batch_of(data, order, b * options.batch_size, options.batch_size);
      const float lr = cosine_rate(options.lr, applied, options.warmup, steps);
      const MixedStep step = mixed_step(network, masters, optimizer, scaler, batch, lr);
      sum += step.loss;
      (step.applied ? applied : report.skipped) += 1;
    }
    report.losses.push_back(sum / static_cast<double>(batches));
  }
  return report;
}

}  // namespace engine
