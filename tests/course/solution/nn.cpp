#include "nn.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "conv.h"
#include "random.h"

namespace engine {
namespace {

Variable random_weight(const Shape& shape, std::int64_t inputs, std::uint64_t seed) {
  return Variable(random_tensor(shape, seed, std::sqrt(2.0f / static_cast<float>(inputs))), true);
}

Variable filled(std::int64_t channels, float value) {
  return Variable(map(Tensor({channels}), [value](float) { return value; }), true);
}

void require_rank(const char* layer, const Variable& x, std::int64_t rank) {
  if (x.value().rank() != rank)
    throw std::invalid_argument(std::string(layer) + ": x must have " + std::to_string(rank) + " axes");
}

/// Where the patches of images [n, c, h, w] lie: the sizes of the result, and which pixel is which element of
/// a row.
struct Patches {
  std::int64_t n, c, h, w, kernel, stride, padding, oh, ow;

  Patches(const Shape& x, std::int64_t kernel, std::int64_t stride, std::int64_t padding)
      : n(x[0]), c(x[1]), h(x[2]), w(x[3]), kernel(kernel), stride(stride), padding(padding) {
    if (kernel < 1 || stride < 1 || padding < 0 || h + 2 * padding < kernel || w + 2 * padding < kernel)
      throw std::invalid_argument(
          "im2col: the kernel must fit into the padded image, and the stride be 1 or more");
    oh = (h + 2 * padding - kernel) / stride + 1, ow = (w + 2 * padding - kernel) / stride + 1;
  }

  /// f(place in the images, place in the rows) of every pixel in every patch; those outside the image are
  /// left out.
  template <typename F> void each(F f) const {
    std::int64_t place = 0;
    for (std::int64_t image = 0; image < n; ++image)
      for (std::int64_t top = -padding; top < oh * stride - padding; top += stride)
        for (std::int64_t left = -padding; left < ow * stride - padding; left += stride)
          for (std::int64_t channel = 0; channel < c; ++channel)
            for (std::int64_t y = top; y < top + kernel; ++y)
              for (std::int64_t x = left; x < left + kernel; ++x, ++place)
                if (y >= 0 && y < h && x >= 0 && x < w) f(((image * c + channel) * h + y) * w + x, place);
  }
};

/// The mean over n, h and w of x [n, c, h, w]: [1, c, 1, 1].
Variable channel_mean(const Variable& x) {
  return mean(mean(mean(x, 0), 2), 3);
}

/// Moves a buffer a tenth of the way to a value, in its own memory: others may hold the buffer.
void follow(const Tensor& buffer, const Tensor& value, float factor) {
  const Tensor flat = value.reshape(buffer.shape());
  copy(zip(buffer, flat, [factor](float old, float now) { return 0.9f * old + 0.1f * factor * now; }),
       buffer);
}

/// What `part` of each layer returns, with the layer's name before each name.
template <typename T, typename Part>
std::vector<std::pair<std::string, T>> gather(const std::vector<std::shared_ptr<Module>>& layers, Part part) {
  std::vector<std::pair<std::string, T>> all;
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (auto& [name, value] : part(*layers[i])) all.emplace_back(std::to_string(i) + "." + name, value);
  return all;
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, std::uint64_t seed)
    : weight_(random_weight({out, in}, in, seed)), bias_(filled(out, 0)) {}

Variable Linear::forward(const Variable& x) {
  const std::int64_t in = weight_.shape()[1], out = weight_.shape()[0];
  if (x.value().rank() < 2 || x.shape().back() != in)
    throw std::invalid_argument("Linear: the last axis of x must have " + std::to_string(in) + " elements");
  Shape shape = x.shape();
  shape.back() = out;
  const Variable rows = reshape(x, {numel(x.shape()) / in, in});
  return reshape(add(matmul(rows, transpose(weight_, 0, 1)), bias_), shape);
}

std::vector<std::pair<std::string, Variable>> Linear::parameters() const {
  return {{"weight", weight_}, {"bias", bias_}};
}

Conv2d::Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, Options options, std::uint64_t seed)
    : weight_(random_weight({out, in, kernel, kernel}, in * kernel * kernel, seed)),
      bias_(filled(out, 0)),
      options_(options) {}

Variable Conv2d::forward(const Variable& x) {
  require_rank("Conv2d", x, 4);
  const Shape& weight = weight_.shape();
  if (x.shape()[1] != weight[1])
    throw std::invalid_argument("Conv2d: x must have " + std::to_string(weight[1]) + " channels");
  const Variable y = conv2d(x, weight_, options_.stride, options_.padding);
  return add(y, reshape(bias_, {1, weight[0], 1, 1}));
}

std::vector<std::pair<std::string, Variable>> Conv2d::parameters() const {
  return {{"weight", weight_}, {"bias", bias_}};
}

BatchNorm2d::BatchNorm2d(std::int64_t channels)
    : weight_(filled(channels, 1)),
      bias_(filled(channels, 0)),
      running_mean_(Tensor({channels})),
      running_var_(filled(channels, 1).value()) {}

Variable BatchNorm2d::forward(const Variable& x) {
  require_rank("BatchNorm2d", x, 4);
  const Shape each{1, numel(weight_.shape()), 1, 1};
  if (x.shape()[1] != each[1])
    throw std::invalid_argument("BatchNorm2d: x must have " + std::to_string(each[1]) + " channels");
  Variable average(running_mean_.reshape(each)), variance(running_var_.reshape(each));
  if (training()) {
    const auto count = static_cast<float>(numel(x.shape()) / each[1]);
    if (count < 2)
      throw std::invalid_argument("BatchNorm2d: training needs more than one pixel in each channel");
    average = channel_mean(x);
    const Variable centred = sub(x, average);
    variance = channel_mean(mul(centred, centred));
    follow(running_mean_, average.value(), 1);
    follow(running_var_, variance.value(), count / (count - 1));
  }
  const Variable deviation = sqrt(add(variance, Variable(Tensor({}, {1e-5f}))));
  const Variable normal = div(sub(x, average), deviation);
  return add(mul(normal, reshape(weight_, each)), reshape(bias_, each));
}

std::vector<std::pair<std::string, Variable>> BatchNorm2d::parameters() const {
  return {{"weight", weight_}, {"bias", bias_}};
}

std::vector<std::pair<std::string, Tensor>> BatchNorm2d::buffers() const {
  return {{"running_mean", running_mean_}, {"running_var", running_var_}};
}

Variable ReLU::forward(const Variable& x) {
  return relu(x);
}

Variable MaxPool2d::forward(const Variable& x) {
  require_rank("MaxPool2d", x, 4);
  if (std::min(x.shape()[2], x.shape()[3]) < size_)
    throw std::invalid_argument("MaxPool2d: an image must have " + std::to_string(size_) +
                                " rows and columns, or more");
  const Patches squares({x.shape()[0] * x.shape()[1], 1, x.shape()[2], x.shape()[3]}, size_, size_, 0);
  const Tensor dense = x.value().contiguous();
  const float* pixels = dense.data();
  Tensor y({x.shape()[0], x.shape()[1], squares.oh, squares.ow});
  std::vector<std::int64_t> largest(static_cast<std::size_t>(y.numel()),
                                    -1);  // for each square, where its largest pixel is
  squares.each([&](std::int64_t pixel, std::int64_t place) {
    std::int64_t& best = largest[static_cast<std::size_t>(place / (size_ * size_))];
    if (best < 0 || pixels[pixel] > pixels[best] || (std::isnan(pixels[pixel]) && !std::isnan(pixels[best])))
      best = pixel;
  });
  for (std::int64_t i = 0; i < y.numel(); ++i) y.data()[i] = pixels[largest[static_cast<std::size_t>(i)]];
  return record(y, {x}, [largest, shape = x.shape()](const Tensor& dy) {
    Tensor dx(shape);
    const Tensor dense = dy.contiguous();
    for (std::int64_t i = 0; i < dense.numel(); ++i)
      dx.data()[largest[static_cast<std::size_t>(i)]] += dense.data()[i];
    return std::vector{dx};
  });
}

Variable Flatten::forward(const Variable& x) {
  if (x.value().rank() < 1) throw std::invalid_argument("Flatten: x must have an axis of images");
  return reshape(x, {x.shape()[0], numel({x.shape().begin() + 1, x.shape().end()})});
}

Sequential::Sequential(std::vector<std::shared_ptr<Module>> layers) : layers_(std::move(layers)) {}

Variable Sequential::forward(const Variable& x) {
  Variable y = x;
  for (const auto& layer : layers_) y = layer->forward(y);
  return y;
}

std::vector<std::pair<std::string, Variable>> Sequential::parameters() const {
  return gather<Variable>(layers_, [](const Module& layer) { return layer.parameters(); });
}

std::vector<std::pair<std::string, Tensor>> Sequential::buffers() const {
  return gather<Tensor>(layers_, [](const Module& layer) { return layer.buffers(); });
}

void Sequential::train(bool on) {
  Module::train(on);
  for (const auto& layer : layers_) layer->train(on);
}

Variable im2col(const Variable& x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  require_rank("im2col", x, 4);
  const Patches patches(x.shape(), kernel, stride, padding);
  const Tensor images = x.value().contiguous();
  const Tensor rows({patches.n * patches.oh * patches.ow, patches.c * kernel * kernel});
  const float* from = images.data();
  float* to = rows.data();
  patches.each([&](std::int64_t pixel, std::int64_t place) { to[place] = from[pixel]; });
  return record(rows, {x}, [patches, shape = x.shape()](const Tensor& dy) {
    const Tensor dx(shape), dense = dy.contiguous();
    // A pixel was copied into every patch that covers it: its gradient is the sum over those.
    const float* from = dense.data();
    float* to = dx.data();
    patches.each([&](std::int64_t pixel, std::int64_t place) { to[pixel] += from[place]; });
    return std::vector{dx};
  });
}

Variable log_softmax(const Variable& x) {
  const std::int64_t last = x.value().rank() - 1;
  const Variable shifted = sub(x, Variable(max(x.value(), last)));  // at most 0, so that exp cannot overflow
  return sub(shifted, log(sum(exp(shifted), last)));
}

Variable cross_entropy(const Variable& logits, const std::vector<int>& labels) {
  if (logits.value().rank() != 2 || labels.empty() ||
      logits.shape()[0] != static_cast<std::int64_t>(labels.size()))
    throw std::invalid_argument(
        "cross_entropy: logits must be [n, classes], with one label for each of n >= 1 rows");
  const Variable log_p = log_softmax(logits);
  const auto n = static_cast<double>(labels.size());
  double total = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] >= logits.shape()[1])
      throw std::invalid_argument("cross_entropy: labels must be in [0, classes), but one is " +
                                  std::to_string(labels[i]));
    total -= log_p.value().at({static_cast<std::int64_t>(i), labels[i]});
  }
  const Tensor loss({}, {static_cast<float>(total / n)});
  return record(loss, {log_p}, [labels, n, shape = log_p.shape()](const Tensor& dy) {
    const Tensor dx(shape);
    for (std::size_t i = 0; i < labels.size(); ++i)
      dx.at({static_cast<std::int64_t>(i), labels[i]}) = static_cast<float>(-dy.item() / n);
    return std::vector{dx};
  });
}

Variable mse(const Variable& x, const Variable& target) {
  if (x.shape() != target.shape())
    throw std::invalid_argument("mse: x and target must have equal shapes, or their difference is broadcast");
  const Variable difference = sub(x, target);
  return scale(sum_all(mul(difference, difference)), 1.0f / static_cast<float>(numel(difference.shape())));
}

}  // namespace engine
