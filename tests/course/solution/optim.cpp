#include "optim.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "random.h"

namespace engine {
namespace {

constexpr std::int64_t kSide = 8, kTrainingDigits = 1437;
constexpr std::size_t kPixels = kSide * kSide;
constexpr int kWhite = 16;  // the largest pixel of the file

std::vector<Tensor> zeros_like(const Parameters& parameters) {
  std::vector<Tensor> zeros;
  for (const auto& [name, p] : parameters) zeros.emplace_back(p.shape());
  return zeros;
}

void append(std::vector<std::pair<std::string, Tensor>>& state, const Parameters& parameters,
            const std::string& name, const std::vector<Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    state.emplace_back(parameters[i].first + "." + name, tensors[i]);
}

/// Calls f(index of the parameter, its values, their gradients, how many) for each that has a gradient.
template <typename F> void each_with_gradient(const Parameters& parameters, F f) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Variable& p = parameters[i].second;
    if (p.grad().numel() == 0) continue;
    if (!p.value().is_contiguous()) p.value() = p.value().clone();
    const Tensor gradient = p.grad().contiguous();
    f(i, p.value().data(), gradient.data(), gradient.numel());
  }
}

/// The numbers between the commas of a line; none if there is anything else.
std::vector<int> numbers_of(std::string line) {
  std::replace(line.begin(), line.end(), ',', ' ');
  std::istringstream fields(line);
  std::vector<int> numbers;
  for (int number = 0; !(fields >> std::ws).eof(); numbers.push_back(number))
    if (!(fields >> number)) return {};
  return numbers;
}

}  // namespace

void Optimizer::clear_grads() const {
  for (const auto& [name, p] : parameters_) p.clear_grad();
}

SGD::SGD(Parameters parameters, Options options)
    : Optimizer(std::move(parameters)),
      options_(options),
      momentum_(zeros_like(parameters_)),
      steps_(Shape{}) {}

void SGD::step(float lr) {
  each_with_gradient(parameters_, [&](std::size_t i, float* p, const float* g, std::int64_t n) {
    float* v = momentum_[i].data();
    for (std::int64_t j = 0; j < n; ++j) {
      v[j] = options_.momentum * v[j] + (g[j] + options_.weight_decay * p[j]);
      p[j] -= lr * v[j];
    }
  });
  steps_.at({}) += 1;
}

std::vector<std::pair<std::string, Tensor>> SGD::state() const {
  std::vector<std::pair<std::string, Tensor>> all;
  append(all, parameters_, "momentum", momentum_);
  all.emplace_back("steps", steps_);
  return all;
}

AdamW::AdamW(Parameters parameters, Options options)
    : Optimizer(std::move(parameters)),
      options_(options),
      mean_(zeros_like(parameters_)),
      square_(zeros_like(parameters_)),
      steps_(Shape{}) {}

void AdamW::step(float lr) {
  const auto [beta1, beta2, eps, weight_decay] = options_;
  const double t = (steps_.at({}) += 1);
  // Both averages began at 0: after t steps their weights sum to 1 - beta^t, not to 1.
  const auto rate = static_cast<float>(lr / (1 - std::pow(double{beta1}, t)));
  const auto root = static_cast<float>(1 / std::sqrt(1 - std::pow(double{beta2}, t)));
  const float keep = 1 - lr * weight_decay;
  each_with_gradient(parameters_, [&, beta1 = beta1, beta2 = beta2, eps = eps](
                                      std::size_t i, float* p, const float* g, std::int64_t n) {
    float *m = mean_[i].data(), *v = square_[i].data();
    for (std::int64_t j = 0; j < n; ++j) {
      m[j] = beta1 * m[j] + (1 - beta1) * g[j];
      v[j] = beta2 * v[j] + (1 - beta2) * g[j] * g[j];
      p[j] = keep * p[j] - rate * m[j] / (root * std::sqrt(v[j]) + eps);
    }
  });
}

std::vector<std::pair<std::string, Tensor>> AdamW::state() const {
  std::vector<std::pair<std::string, Tensor>> all;
  append(all, parameters_, "mean", mean_);
  append(all, parameters_, "square", square_);
  all.emplace_back("steps", steps_);
  return all;
}

float cosine_rate(float peak, std::int64_t step, std::int64_t warmup, std::int64_t steps) {
  if (step < warmup) return peak * static_cast<float>(step) / static_cast<float>(warmup);
  if (step >= steps) return 0;
  const double way = static_cast<double>(step - warmup) / static_cast<double>(steps - warmup);
  return static_cast<float>(peak * (1 + std::cos(3.14159265358979 * way)) / 2);
}

float clip_grad_norm(const Parameters& parameters, float most) {
  double squares = 0;
  each_with_gradient(parameters, [&](std::size_t, float*, const float* g, std::int64_t n) {
    for (std::int64_t j = 0; j < n; ++j) squares += double{g[j]} * g[j];
  });
  const double norm = std::sqrt(squares);
  if (std::isfinite(norm) && norm > most) {
    const auto factor = static_cast<float>(most / norm);
    for (const auto& [name, p] : parameters)
      p.grad() = map(p.grad(), [factor](float g) { return factor * g; });
  }
  return static_cast<float>(norm);
}

Dataset read_digits(const std::string& path, bool training) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("read_digits: cannot open " + path);
  std::vector<float> pixels;
  Dataset data;
  std::string line;
  for (std::int64_t number = 0; std::getline(file, line); ++number) {
    if ((number < kTrainingDigits) != training) continue;
    const std::vector<int> numbers = numbers_of(line);
    bool right = numbers.size() == kPixels + 1;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      right &= numbers[i] >= 0 && numbers[i] <= (i < kPixels ? kWhite : 9);
    if (!right)
      throw std::runtime_error("read_digits: line " + std::to_string(number + 1) + " of " + path +
                               " must be 64 pixels from 0 to 16 and a digit, but is not");
    for (std::size_t i = 0; i < kPixels; ++i) pixels.push_back(static_cast<float>(numbers[i]) / kWhite);
    data.labels.push_back(numbers.back());
  }
  data.images = Tensor({data.size(), 1, kSide, kSide}, std::move(pixels));
  return data;
}

std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  const std::uint64_t own = random_bits(seed, static_cast<std::uint64_t>(epoch));
  for (std::uint64_t left = order.size(); left > 1; --left)
    std::swap(order[left - 1], order[random_bits(own, left) % left]);
  return order;
}

Dataset batch_of(const Dataset& data, const std::vector<std::int64_t>& order, std::int64_t begin,
                 std::int64_t size) {
  Dataset batch;
  Shape shape = data.images.shape();
  shape[0] = size;
  batch.images = Tensor(shape);
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t sample = order.at(static_cast<std::size_t>(begin + i));
    copy(data.images.narrow(0, sample, 1), batch.images.narrow(0, i, 1));
    batch.labels.push_back(data.labels.at(static_cast<std::size_t>(sample)));
  }
  return batch;
}

double accuracy(Module& network, const Dataset& data) {
  const NoGrad no_grad;
  const bool before = network.training();
  network.train(false);
  const Tensor logits = network.forward(Variable(data.images)).value();
  network.train(before);
  const std::vector<float> values = logits.values();
  const std::int64_t classes = logits.shape()[1];
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const auto row = values.begin() + i * classes;
    right += std::max_element(row, row + classes) - row == data.labels[static_cast<std::size_t>(i)];
  }
  return static_cast<double>(right) / static_cast<double>(data.size());
}

std::vector<double> fit(Module& network, Optimizer& optimizer, const Dataset& data,
                        const FitOptions& options) {
  const std::int64_t batches = data.size() / options.batch_size;
  if (batches == 0)
    throw std::invalid_argument("fit: the data must fill one batch of " + std::to_string(options.batch_size));
  network.train(true);
  std::vector<double> losses;
  std::int64_t step = 0;
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    const auto order = epoch_order(data.size(), options.seed, epoch);
    double total = 0;
    for (std::int64_t i = 0; i < batches; ++i, ++step) {
      const Dataset batch = batch_of(data, order, i * options.batch_size, options.batch_size);
      optimizer.clear_grads();
      const Variable loss = cross_entropy(network.forward(Variable(batch.images)), batch.labels);
      backward(loss);
      optimizer.step(cosine_rate(options.lr, step, options.warmup, options.epochs * batches));
      total += loss.value().item();
    }
    losses.push_back(total / static_cast<double>(batches));
  }
  return losses;
}

}  // namespace engine
