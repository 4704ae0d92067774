// Figures of single layers: finite differences, initialisation.

#include <cmath>

#include "athanor.h"
#include "examples/book_figures/figures.h"

namespace athanor::examples {
namespace {

// The largest relative error of (f(x + h) - f(x - h)) / 2h for f = exp(sin x), over 64 places. As gradcheck
// does it: only f is computed in T.
template <class T> double difference_error(double step) {
  double worst = 0;
  for (int i = 1; i <= 64; ++i) {
    const T x = T(0.05 * i);
    const auto f = [](T at) { return std::exp(std::sin(at)); };
    const T up = x + T(step), down = x - T(step);
    const double difference = (static_cast<double>(f(up)) - static_cast<double>(f(down))) / (2 * step);
    const double exact = std::cos(static_cast<double>(x)) * std::exp(std::sin(static_cast<double>(x)));
    worst = std::max(worst, std::abs(difference - exact) / 2.718281828);
  }
  return worst;
}

double spread_of(const Tensor& x) {
  const NoGrad off;
  return std::sqrt(mean(square(x)).item());
}

// Root mean squares of the activations behind each of 24 convolutions, and of their gradients.
nlohmann::json through_layers(const nn::Init& init) {
  constexpr int kLayers = 24;
  std::vector<Tensor> weights, results;
  Tensor x = randn({8, 16, 16, 32}, {.seed = 7});
  require_grad(x);
  const Tensor input = x;
  for (int layer = 0; layer < kLayers; ++layer) {
    const Tensor w = empty({32, 3, 3, 32});
    init(w, {.seed = 1, .stream = static_cast<std::uint64_t>(layer)});
    x = relu(conv2d(x, w, {}, {.same_padding = true, .impl = ConvImpl::reference}));
    results.push_back(x);
  }
  const std::vector<Tensor> gradients = grad(x, results, randn(x.shape(), {.seed = 8}));
  nlohmann::json out;
  for (int layer = 0; layer < kLayers; ++layer) {
    out["activations"].push_back(spread_of(results[static_cast<std::size_t>(layer)]));
    out["gradients"].push_back(spread_of(gradients[static_cast<std::size_t>(layer)]));
  }
  return out;
}

}  // namespace

nlohmann::json gradcheck_errors() {
  nlohmann::json out;
  for (double exponent = -12; exponent <= 0; exponent += 0.25) {
    const double step = std::pow(10.0, exponent);
    out["step"].push_back(step);
    out["f64"].push_back(difference_error<double>(step));
    if (exponent >= -6) out["f32"].push_back({step, difference_error<float>(step)});
  }
  return out;
}

nlohmann::json depth_spread() {
  const auto torch_default = [](const Tensor& w, RandomKey key) {
    const double bound = 1 / std::sqrt(static_cast<double>(nn::init::fans(w.shape()).in));
    nn::init::uniform(w, key, -bound, bound);
  };
  return {
      {"Kaiming, gain sqrt(2)",
       through_layers([](const Tensor& w, RandomKey key) { nn::init::kaiming_normal(w, key); })},
      {"Xavier, gain 1",
       through_layers([](const Tensor& w, RandomKey key) { nn::init::xavier_normal(w, key); })},
      {"PyTorch's default", through_layers(torch_default)},
      {"Kaiming, gain 2",
       through_layers([](const Tensor& w, RandomKey key) { nn::init::kaiming_normal(w, key, 2); })},
  };
}

}  // namespace athanor::examples
