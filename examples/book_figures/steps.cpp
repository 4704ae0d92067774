// Figures of short trainings on the digits: running statistics, the last bit, memory of a step.

#include <cmath>

#include "athanor.h"
#include "autograd/op_observer.h"
#include "examples/book_figures/figures.h"

namespace athanor::examples {
namespace {

struct Batch {
  Tensor images, labels;
};

Batch batch_of(const InMemoryDataset& data, std::span<const double> order) {
  std::vector<float> images;
  std::vector<std::int64_t> labels;
  for (const double sample : order) {
    const auto index = static_cast<std::size_t>(sample);
    for (const std::uint8_t pixel : data.pixels().subspan(index * 64, 64))
      images.push_back(pixel / 127.5f - 1);
    labels.push_back(data.labels()[index]);
  }
  const auto n = static_cast<std::int64_t>(order.size());
  return {Tensor::from(images, {n, 8, 8, 1}), Tensor::from(labels, {n})};
}

// A small network with batch norms whose running statistics have `momentum`.
struct Network final : nn::Module {
  nn::Conv2d conv1{1, 16, 3, {.padding = 1, .bias = false, .impl = ConvImpl::reference}},
      conv2{16, 32, 3, {.padding = 1, .bias = false, .impl = ConvImpl::reference}};
  nn::BatchNorm norm1, norm2;
  nn::Linear head{2 * 2 * 32, 10};

  explicit Network(double momentum)
      : norm1(16, {.momentum = momentum, .activation = Activation::relu}),
        norm2(32, {.momentum = momentum, .activation = Activation::relu}) {
    register_module("conv1", conv1);
    register_module("norm1", norm1);
    register_module("conv2", conv2);
    register_module("norm2", norm2);
    register_module("head", head);
    initialize(1);
  }
  Tensor forward(const Tensor& x) override {
    return head(flatten(max_pool2d(norm2(conv2(max_pool2d(norm1(conv1(x))))))));
  }
};

double accuracy_of(nn::Module& network, const Batch& batch) {
  const NoGrad off;
  return mean(cast(eq(argmax(network(batch.images), 1), batch.labels), DType::f32)).item();
}

// Plain SGD on batches of 32; calls after(step, loss) behind each.
template <class F> void train(Network& network, int steps, float rate, const F& after) {
  const auto data = digits(Split::train);
  std::vector<double> order;
  for (int step = 0; step < steps; ++step) {
    const auto at = static_cast<std::size_t>(step) % 44;
    if (at == 0) order = randperm(data->size(), {2, static_cast<std::uint64_t>(step)}).to_vector();
    const Batch batch = batch_of(*data, std::span(order).subspan(at * 32, 32));
    const std::vector<Parameter> parameters = network.parameters();
    for (const Parameter& parameter : parameters) zero_grad(parameter.tensor);
    const Tensor loss = cross_entropy(network(batch.images), batch.labels);
    backward(loss);
    for (const Parameter& parameter : parameters) {
      float* value = parameter.tensor.data<float>();
      const Tensor gradient = contiguous(grad_of(parameter.tensor));
      for (std::int64_t i = 0; i < gradient.numel(); ++i) value[i] -= rate * gradient.data<float>()[i];
      parameter.tensor.bump_version();
    }
    after(step + 1, loss.item());
  }
}

std::vector<double> weights_of(const Network& network) {
  std::vector<double> all;
  for (const Parameter& parameter : network.parameters()) {
    for (const double value : parameter.tensor.detach().to_vector()) all.push_back(value);
  }
  return all;
}

double relative_distance(std::span<const double> weights, std::span<const double> others) {
  double sum = 0, norm = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sum += (weights[i] - others[i]) * (weights[i] - others[i]);
    norm += others[i] * others[i];
  }
  return std::sqrt(sum / norm);
}

// Live bytes after each op, forward and backward, without those at the beginning.
class MemoryWatch final : public OpObserver {
 public:
  MemoryWatch() : before_(now()) {}
  void recorded(const OpCall&, const Tensor&, std::span<const Input>) override {
    bytes.push_back(now() - before_);
  }
  void backward_ended(const char*, const char*, const Tensor&, std::span<const Tensor>) override {
    bytes.push_back(now() - before_);
  }

  std::vector<std::int64_t> bytes;

 private:
  static std::int64_t now() { return allocator_of(kCpu).stats().current; }
  std::int64_t before_;
};

// A chain of 16 convolutions with ReLU; every `segment` of them is one checkpoint(), 0: none.
nlohmann::json watch_step(int segment) {
  std::vector<Tensor> weights;
  for (std::uint64_t layer = 0; layer < 16; ++layer) {
    const Tensor w = empty({16, 3, 3, 16});
    nn::init::kaiming_normal(w, {.seed = 1, .stream = layer});
    weights.push_back(require_grad(w));
  }
  const auto layers = [&weights](Tensor x, std::size_t first, std::size_t last) {
    for (std::size_t layer = first; layer < last; ++layer)
      x = relu(conv2d(x, weights[layer], {}, {.same_padding = true, .impl = ConvImpl::reference}));
    return x;
  };
  Tensor x = randn({16, 32, 32, 16}, {.seed = 3});
  require_grad(x);
  MemoryWatch watch;
  {
    const ObserveScope observe(watch);
    if (segment == 0) {
      x = layers(x, 0, 16);
    } else {
      for (std::size_t first = 0; first < 16; first += static_cast<std::size_t>(segment)) {
        const std::size_t last = first + static_cast<std::size_t>(segment);
        x = checkpoint([layers, first, last](const Tensor& in) { return layers(in, first, last); }, x);
      }
    }
    const Tensor loss = mean(x);
    x = {};
    backward(loss);
  }
  return {{"bytes", watch.bytes}};
}

}  // namespace

nlohmann::json running_statistics() {
  const auto test = digits(Split::test);
  const Batch all = batch_of(*test, arange(0, 360, 1, {DType::f64}).to_vector());
  nlohmann::json out;
  for (const double momentum : {0.1, 0.01}) {
    Network network(momentum);
    nlohmann::json rows;
    train(network, 132, 0.1f, [&](int step, double) {
      if (step > 12 && step % 4 != 0) return;
      network.eval();
      const double evaluated = accuracy_of(network, all);
      network.train();
      // In training mode a pass moves the running statistics: put them back.
      std::vector<std::vector<double>> kept;
      for (const NamedTensor& buffer : network.buffers()) kept.push_back(buffer.tensor.to_vector());
      const double trained = accuracy_of(network, all);
      std::size_t next = 0;
      for (const NamedTensor& buffer : network.buffers()) {
        for (std::size_t i = 0; i < kept[next].size(); ++i)
          buffer.tensor.data<float>()[i] = static_cast<float>(kept[next][i]);
        ++next;
      }
      rows.push_back({step, evaluated, trained});
    });
    out[fmt::format("{}", momentum)] = rows;
  }
  return out;
}

nlohmann::json last_bit() {
  nlohmann::json out;
  for (const float rate : {0.1f, 1.0f}) {
    std::vector<std::vector<double>> first;
    for (const bool changed : {false, true}) {
      Network network(0.1);
      if (changed) {
        float& weight = network.head.weight().data<float>()[0];
        weight = std::nextafter(weight, 1.0f);
      }
      train(network, 440, rate, [&](int step, double loss) {
        const std::vector<double> weights = weights_of(network);
        if (!changed) return first.push_back(weights);
        const double distance = relative_distance(weights, first[static_cast<std::size_t>(step - 1)]);
        if (step <= 20 || step % 5 == 0) out[fmt::format("{:g}", rate)].push_back({step, distance, loss});
      });
    }
  }
  return out;
}

nlohmann::json step_memory() {
  nlohmann::json out;
  for (const int segment : {0, 4, 1}) out[fmt::format("{}", segment)] = watch_step(segment);
  return out;
}

}  // namespace athanor::examples
