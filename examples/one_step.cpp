// A training on the digits without Trainer, Module or Optimizer, explained in docs/one_step_by_hand.md.
#include "athanor.h"

using namespace athanor;

namespace {

/// Images [N, 8, 8, 1] f32 from -1 to 1, and labels [N] i64, of the samples in `order`.
std::pair<Tensor, Tensor> batch_of(const InMemoryDataset& data, std::span<const double> order) {
  std::vector<float> images;
  std::vector<std::int64_t> labels;
  for (const double sample : order) {
    const auto at = static_cast<std::size_t>(sample);
    for (const std::uint8_t pixel : data.pixels().subspan(at * 64, 64)) images.push_back(pixel / 127.5f - 1);
    labels.push_back(data.labels()[at]);
  }
  const auto n = static_cast<std::int64_t>(order.size());
  return {Tensor::from(images, {n, 8, 8, 1}), Tensor::from(labels, {n})};
}

Tensor new_weight(const Shape& shape, std::uint64_t stream) {
  const Tensor w = empty(shape);
  nn::init::kaiming_normal(w, {.seed = 1, .stream = stream});
  return require_grad(w);
}

Tensor network(const Tensor& x, const std::vector<Tensor>& w) {
  const Tensor edges = max_pool2d(relu(conv2d(x, w[0], {}, {.same_padding = true})));      // [N, 4, 4, 16]
  const Tensor parts = max_pool2d(relu(conv2d(edges, w[1], {}, {.same_padding = true})));  // [N, 2, 2, 32]
  return linear(flatten(parts), w[2]);                                                     // [N, 10]
}

}  // namespace

int main() {
  const auto train = digits(Split::train), test = digits(Split::test);
  const std::vector<Tensor> weights{new_weight({16, 3, 3, 1}, 1), new_weight({32, 3, 3, 16}, 2),
                                    new_weight({10, 128}, 3)};
  for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
    const std::vector<double> order = randperm(train->size(), {.seed = 2, .stream = epoch}).to_vector();
    for (std::size_t step = 0; step < 44; ++step) {
      const auto [images, labels] = batch_of(*train, std::span(order).subspan(step * 32, 32));
      const Tensor loss = cross_entropy(network(images, weights), labels);
      for (const Tensor& w : weights) zero_grad(w);
      backward(loss);
      const float rate = schedules::cosine(0.2, 440)(static_cast<std::int64_t>(epoch * 44 + step));
      for (const Tensor& w : weights) {
        const Tensor gradient = grad_of(w);
        for (std::int64_t i = 0; i < w.numel(); ++i) w.data<float>()[i] -= rate * gradient.data<float>()[i];
        w.bump_version();
      }
      if (step == 43) fmt::print("epoch {:2}   loss of the last batch {:.4f}   ", epoch + 1, loss.item());
    }
    const InferenceMode inference;
    const auto [images, labels] = batch_of(*test, arange(0, 360, 1, {DType::f64, kCpu}).to_vector());
    const Tensor right = eq(argmax(network(images, weights), 1), labels);
    fmt::print("test accuracy {:.2f} %\n", 100 * mean(cast(right, DType::f32)).item());
  }
}
