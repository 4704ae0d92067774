#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradcheck.h"
#include "nn.h"
#include "random.h"

namespace {

using namespace engine;
using Values = std::vector<float>;

Tensor counting(const Shape& shape) {
  Tensor x(shape);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data()[i] = static_cast<float>(i);
  return x;
}

std::vector<Variable> leaves_of(const Module& module, const Variable& x) {
  std::vector<Variable> leaves{x};
  for (const auto& [name, p] : module.parameters()) leaves.push_back(p);
  return leaves;
}

Variable find(const Module& module, const std::string& name) {
  for (const auto& [found, p] : module.parameters())
    if (found == name) return p;
  throw std::runtime_error("there must be a parameter called " + name);
}

double square_mean(const Tensor& x) {
  double total = 0;
  for (const float v : x.values()) total += double{v} * v;
  return total / static_cast<double>(x.numel());
}

/// The largest difference between two elements at the same place.
double distance(const Tensor& x, const Tensor& y) {
  const Values a = x.values(), b = y.values();
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double apart = std::fabs(double{a[i]} - b[i]);
    if (!(apart <= largest)) largest = std::isnan(apart) ? INFINITY : apart;
  }
  return largest;
}

TEST(Linear, MultipliesRowsByTheTransposedWeight) {
  Linear layer(3, 2, 1);
  const Tensor weight = find(layer, "weight").value(), bias = find(layer, "bias").value();
  ASSERT_EQ(weight.shape(), (Shape{2, 3}))
      << "weight is [out, in], so that a row holds what one output needs";
  ASSERT_EQ(bias.shape(), (Shape{2}));
  EXPECT_EQ(bias.values(), (Values{0, 0})) << "bias starts at 0";
  copy(counting({2, 3}), weight);
  copy(Tensor({2}, {100, 200}), bias);
  const Tensor y = layer.forward(Variable(Tensor({1, 3}, {1, 2, 3}))).value();
  EXPECT_EQ(y.values(), (Values{108, 226})) << "0 1 + 1 2 + 2 3 + 100, and 3 1 + 4 2 + 5 3 + 200";
  const Tensor x3 = random_tensor({2, 5, 3}, 1);
  const Tensor sequences = layer.forward(Variable(x3)).value();
  EXPECT_EQ(sequences.shape(), (Shape{2, 5, 2})) << "[n, t, in]: every row of every sequence is a row";
  EXPECT_LT(distance(sequences, layer.forward(Variable(x3.reshape({10, 3}))).value()), 1e-5)
      << "[2, 5, 3] must give the same numbers as its ten rows, [10, 3]";
  EXPECT_THROW(layer.forward(Variable(Tensor({1, 4}))), std::invalid_argument) << "4 inputs for a layer of 3";
  const Variable x(random_tensor({2, 3}, 2), true);
  gradcheck("Linear", leaves_of(layer, x), [&] { return layer.forward(x); });
  const double variance = square_mean(find(Linear(200, 100, 7), "weight").value());
  EXPECT_NEAR(variance, 0.01, 0.001)
      << "the variance of the weights is 2 / in: each sum of `in` products keeps its size";
  EXPECT_EQ(find(Linear(3, 2, 5), "weight").value().values(),
            find(Linear(3, 2, 5), "weight").value().values())
      << "the seed alone decides about the weights";
  EXPECT_NE(find(Linear(3, 2, 5), "weight").value().values(),
            find(Linear(3, 2, 6), "weight").value().values())
      << "another seed, other weights: layers that begin equal would stay alike";
}

TEST(Modules, NameWhatTheyHoldAndPassTrainOn) {
  Sequential network({std::make_shared<Conv2d>(1, 2, 3, Conv2d::Options{}, 1),
                      std::make_shared<BatchNorm2d>(2), std::make_shared<ReLU>(), std::make_shared<Flatten>(),
                      std::make_shared<Linear>(8, 3, 2)});
  std::vector<std::string> names, buffers;
  for (const auto& [name, p] : network.parameters()) names.push_back(name);
  for (const auto& [name, b] : network.buffers()) buffers.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias"}));
  EXPECT_EQ(buffers, (std::vector<std::string>{"1.running_mean", "1.running_var"}));
  EXPECT_EQ(network.forward(Variable(random_tensor({4, 1, 4, 4}, 1))).shape(), (Shape{4, 3}));
  const auto inner = std::make_shared<BatchNorm2d>(1);
  Sequential outer({std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{inner})});
  ASSERT_EQ(outer.parameters().size(), 2u) << "a Sequential may hold another";
  EXPECT_EQ(outer.parameters()[0].first, "0.0.weight") << "names of layers in layers are joined by dots";
  outer.train(false);
  EXPECT_FALSE(inner->training()) << "train() must reach every layer: batch norm depends on it";
  EXPECT_FALSE(outer.training());
  outer.train(true);
  EXPECT_TRUE(inner->training());
  EXPECT_TRUE(network.parameters()[0].second.same_as(network.parameters()[0].second))
      << "parameters() returns the variables themselves, not copies";
  EXPECT_EQ(Flatten().forward(Variable(counting({2, 3, 4}))).shape(), (Shape{2, 12}));
}

TEST(Im2col, LaysEachPatchInARow) {
  const Variable x(counting({1, 1, 3, 3}));
  const Tensor rows = im2col(x, 2, 1, 0).value();
  ASSERT_EQ(rows.shape(), (Shape{4, 4})) << "2 x 2 places, each with 2 x 2 pixels";
  EXPECT_EQ(rows.values(), (Values{0, 1, 3, 4, 1, 2, 4, 5, 3, 4, 6, 7, 4, 5, 7, 8}));
  const Tensor strided = im2col(Variable(counting({1, 1, 2, 3})), 3, 2, 1).value();
  ASSERT_EQ(strided.shape(), (Shape{2, 9})) << "oh = (2 + 2 - 3) / 2 + 1 = 1, ow = (3 + 2 - 3) / 2 + 1 = 2";
  EXPECT_EQ(strided.values(), (Values{0, 0, 0, 0, 0, 1, 0, 3, 4, 0, 0, 0, 1, 2, 0, 4, 5, 0}))
      << "outside the image are zeros";
  const Tensor channels = im2col(Variable(counting({2, 2, 1, 1})), 1, 1, 0).value();
  EXPECT_EQ(channels.shape(), (Shape{2, 2}));
  EXPECT_EQ(channels.values(), (Values{0, 1, 2, 3}))
      << "a row has all channels of one place, and images come one after another";
  const Tensor planes = im2col(Variable(counting({1, 2, 2, 2})), 2, 1, 0).value();
  EXPECT_NE(planes.values(), (Values{0, 4, 1, 5, 2, 6, 3, 7}))
      << "this row goes pixel by pixel, with the channels of each: here all pixels of the first channel come "
         "before those of the second, as in the weights [k, c, r, r]";
  EXPECT_EQ(planes.values(), (Values{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(im2col(Variable(counting({1, 1, 2, 3}).transpose(2, 3)), 1, 1, 0).value().values(),
            (Values{0, 3, 1, 4, 2, 5}))
      << "images may be a view";
  EXPECT_THROW(im2col(x, 4, 1, 0), std::invalid_argument) << "a kernel of 4 does not fit into an image of 3";
  EXPECT_THROW(im2col(Variable(counting({1, 1, 5, 2})), 3, 1, 0), std::invalid_argument)
      << "a kernel of 3 fits into the five rows, but not into the two columns";
  EXPECT_THROW(im2col(x, 0, 1, 0), std::invalid_argument) << "a kernel of 0 has no pixels";
  EXPECT_THROW(im2col(x, 1, 0, 0), std::invalid_argument) << "with a stride of 0 it would stand still";
  EXPECT_THROW(im2col(x, 1, 1, -1), std::invalid_argument) << "a padding of -1 would cut the image";
}

TEST(Im2col, AddsTheGradientsOfPatchesThatOverlap) {
  const Variable x(counting({1, 1, 3, 3}), true);
  backward(sum_all(im2col(x, 2, 1, 0)));
  EXPECT_NE(x.grad().values(), Values(9, 1.0f))
      << "patches overlap: the middle pixel is in four of them, and its gradient is their sum";
  EXPECT_EQ(x.grad().values(), (Values{1, 2, 1, 2, 4, 2, 1, 2, 1}));
  gradcheck_op("im2col with stride and padding", {random_tensor({2, 2, 4, 3}, 1)},
               [](const std::vector<Variable>& v) { return im2col(v[0], 3, 2, 1); });
}

/// By the formula, in double.
Tensor direct_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, std::int64_t stride,
                          std::int64_t padding) {
  const std::int64_t h = x.shape()[2], w = x.shape()[3], r = weight.shape()[2];
  Tensor y({x.shape()[0], weight.shape()[0], (h + 2 * padding - r) / stride + 1,
            (w + 2 * padding - r) / stride + 1});
  for (std::int64_t n = 0; n < y.shape()[0]; ++n)
    for (std::int64_t k = 0; k < y.shape()[1]; ++k)
      for (std::int64_t oy = 0; oy < y.shape()[2]; ++oy)
        for (std::int64_t ox = 0; ox < y.shape()[3]; ++ox) {
          double total = bias.at({k});
          for (std::int64_t c = 0; c < x.shape()[1]; ++c)
            for (std::int64_t i = 0; i < r; ++i)
              for (std::int64_t j = 0; j < r; ++j) {
                const std::int64_t iy = oy * stride + i - padding, ix = ox * stride + j - padding;
                if (iy >= 0 && iy < h && ix >= 0 && ix < w)
                  total += double{x.at({n, c, iy, ix})} * weight.at({k, c, i, j});
              }
          y.at({n, k, oy, ox}) = static_cast<float>(total);
        }
  return y;
}

TEST(Conv2d, EqualsADirectSum) {
  struct Case {
    std::int64_t kernel, stride, padding;
  };
  for (const auto& [kernel, stride, padding] : {Case{1, 1, 0}, Case{3, 1, 1}, Case{3, 2, 1}, Case{2, 2, 0}}) {
    Conv2d layer(2, 3, kernel, {stride, padding}, 5);
    const Tensor weight = find(layer, "weight").value(), bias = find(layer, "bias").value();
    ASSERT_EQ(weight.shape(), (Shape{3, 2, kernel, kernel}));
    copy(Tensor({3}, {1, 2, 3}), bias);
    const Variable x(random_tensor({2, 2, 5, 4}, 6), true);
    const Tensor expected = direct_convolution(x.value(), weight, bias, stride, padding);
    const Tensor y = layer.forward(x).value();
    ASSERT_EQ(y.shape(), expected.shape())
        << "kernel " << kernel << ", stride " << stride << ", padding " << padding;
    for (std::int64_t i = 0; i < y.numel(); ++i)
      ASSERT_NEAR(y.values()[i], expected.values()[i], 1e-4)
          << "element " << i << " with kernel " << kernel << ", stride " << stride << ", padding " << padding
          << ": the product has the channels on its last axis, but the result has them before the rows of "
             "the image; "
             "a transposed tensor is not a reshaped one";
    gradcheck("Conv2d", leaves_of(layer, x), [&] { return layer.forward(x); });
  }
  const double variance = square_mean(find(Conv2d(20, 50, 3, {}, 7), "weight").value());
  EXPECT_NEAR(variance, 2.0 / 180, 0.001) << "each output sums c r r products: the variance is 2 / (c r r)";
  Conv2d layer(2, 3, 3, {}, 5);
  EXPECT_EQ(find(layer, "bias").value().values(), (Values{0, 0, 0})) << "bias starts at 0";
  EXPECT_NE(find(layer, "weight").value().values(), find(Conv2d(2, 3, 3, {}, 6), "weight").value().values())
      << "another seed, other weights";
  EXPECT_THROW(layer.forward(Variable(Tensor({1, 1, 5, 5}))), std::invalid_argument)
      << "1 channel for a layer of 2";
}

TEST(BatchNorm, MakesEachChannelStandard) {
  BatchNorm2d layer(2);
  EXPECT_EQ(find(layer, "weight").value().values(), (Values{1, 1}));
  EXPECT_EQ(find(layer, "bias").value().values(), (Values{0, 0}));
  const Tensor dark_and_bright({2, 1, 1, 2}, {0, 0, 1, 1});
  EXPECT_NEAR(BatchNorm2d(1).forward(Variable(dark_and_bright)).value().at({0, 0, 0, 0}), -1, 1e-3)
      << "each image was made standard by itself: mean and variance are those of all images of the batch, so "
         "that a dark image stays darker than a bright one";
  const Variable x(map(random_tensor({3, 2, 2, 2}, 1), [](float v) { return 5 + 3 * v; }), true);
  const Tensor y = layer.forward(x).value();
  for (std::int64_t channel = 0; channel < 2; ++channel) {
    const Tensor values = y.narrow(1, channel, 1);
    EXPECT_NEAR(sum_to(values, {}).item(), 0, 1e-4)
        << "the mean of a channel is over images, rows and columns";
    EXPECT_NEAR(square_mean(values), 1, 1e-4)
        << "the batch is divided by its own deviation: that of 12 numbers, divided by 12, not by 11";
  }
  copy(Tensor({2}, {2, 3}), find(layer, "weight").value());
  copy(Tensor({2}, {-1, 1}), find(layer, "bias").value());
  gradcheck("BatchNorm2d: mean and variance depend on x, too", leaves_of(layer, x),
            [&] { return layer.forward(x); });
  EXPECT_THROW(layer.forward(Variable(Tensor({1, 2, 1, 1}))), std::invalid_argument)
      << "one number has no variance";
}

TEST(BatchNorm, KeepsAnotherVarianceThanItUses) {
  BatchNorm2d layer(1);
  const auto buffers =
      layer.buffers();  // before any step: they are handed out once, and must stay the layer's own
  ASSERT_EQ(buffers.size(), 2u);
  EXPECT_EQ(buffers[0].first, "running_mean");
  EXPECT_EQ(buffers[1].first, "running_var");
  EXPECT_EQ(buffers[0].second.item(), 0);
  EXPECT_EQ(buffers[1].second.item(), 1) << "a variance of 0 would divide by almost nothing";
  layer.forward(Variable(Tensor({4, 1, 1, 1}, {1, 3, 5, 7})));  // mean 4, squares 9 + 1 + 1 + 9 = 20
  EXPECT_NE(buffers[1].second.item(), 1)
      << "the buffers that were handed out have not changed: write into their memory";
  EXPECT_FLOAT_EQ(buffers[0].second.item(), 0.4f) << "a tenth of the way from 0 to 4";
  EXPECT_FALSE(std::fabs(buffers[1].second.item() - (0.9f + 0.1f * 20 / 4)) < 1e-5)
      << "running_var took the biased variance, 20 / 4: as an estimate of all data it is 20 / 3, count / "
         "(count - 1) times that";
  EXPECT_FLOAT_EQ(buffers[1].second.item(), 0.9f + 0.1f * 20 / 3);
  layer.train(false);
  const float y = layer.forward(Variable(Tensor({1, 1, 1, 1}, {2.4f}))).value().item();
  EXPECT_NEAR(y, 2 / std::sqrt(0.9 + 2.0 / 3 + 1e-5), 1e-5)
      << "evaluation uses the running mean and variance, even for one pixel";
  EXPECT_FLOAT_EQ(buffers[0].second.item(), 0.4f) << "evaluation changes no buffer";
  layer.train(true);
  {
    const NoGrad no_grad;
    layer.forward(Variable(Tensor({2, 1, 1, 1}, {5, 7})));
  }
  EXPECT_FLOAT_EQ(buffers[0].second.item(), 0.9f * 0.4f + 0.1f * 6)
      << "training() alone decides between training and evaluation, not whether a tape is recorded";
  EXPECT_THROW(layer.forward(Variable(Tensor({1, 3, 2, 2}))), std::invalid_argument)
      << "3 channels for a layer of 1: broadcasting would give all of them the same statistics";
}

TEST(BatchNorm, DividesSmallDeviations) {
  BatchNorm2d layer(1);
  const Values constant = layer.forward(Variable(Tensor({4, 1, 1, 1}, {7, 7, 7, 7}))).value().values();
  EXPECT_EQ(constant, (Values{0, 0, 0, 0}))
      << "a constant channel has variance 0, and 0 / 0 is NaN: add eps to the variance, below the root";
  const Tensor far({4, 1, 1, 1}, {1000.125f, 999.875f, 1000.125f, 999.875f});
  const Values y = layer.forward(Variable(far)).value().values();
  EXPECT_NEAR(y[0], 1, 0.01) << "1000.125 is one deviation above the mean of 1000: E[x x] - E[x] E[x] is the "
                                "difference of two numbers near 1,000,000, in which 0.0156 is lost; take the "
                                "mean of (x - mean)^2";
  EXPECT_NEAR(y[1], -1, 0.01);
  const float small = std::sqrt(1e-5f);
  const Values halved =
      layer.forward(Variable(Tensor({4, 1, 1, 1}, {small, -small, small, -small}))).value().values();
  EXPECT_NEAR(halved[0], std::sqrt(0.5), 0.01) << "a variance of 1e-5 and eps = 1e-5 are 2e-5 below the "
                                                  "root: eps is added to the variance, not to the deviation";
}

TEST(MaxPool, TakesTheFirstOfTheLargest) {
  MaxPool2d layer(2);
  const Variable x(Tensor({1, 1, 3, 5}, {-4, -2, 7, 7, 9,  //
                                         -3, -9, 7, 1, 9,  //
                                         8, 8, 8, 8, 8}),
                   true);
  const Variable y = layer.forward(x);
  ASSERT_EQ(y.shape(), (Shape{1, 1, 1, 2})) << "a row and a column that do not fill a square are left out";
  EXPECT_NE(y.value().at({0, 0, 0, 0}), 0) << "all four are negative: the search must not begin with 0";
  EXPECT_EQ(y.value().values(), (Values{-2, 7}));
  backward(sum_all(mul(y, Variable(Tensor({2}, {10, 20})))));
  EXPECT_EQ(x.grad().values(), (Values{0, 10, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}))
      << "the gradient goes to the largest pixel alone, and of equal ones to the first";
  const Tensor channels = layer.forward(Variable(counting({2, 2, 2, 2}))).value();
  EXPECT_EQ(channels.shape(), (Shape{2, 2, 1, 1}));
  EXPECT_EQ(channels.values(), (Values{3, 7, 11, 15})) << "each channel of each image for itself";
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Values& square : {Values{1, nan, 2, 3}, Values{nan, 1, 2, 3}})
    EXPECT_TRUE(std::isnan(layer.forward(Variable(Tensor({1, 1, 2, 2}, square))).value().item()))
        << "a NaN among the pixels must stay visible: every comparison with it is false";
  EXPECT_THROW(layer.forward(Variable(Tensor({1, 1, 1, 5}))), std::invalid_argument)
      << "no square of 2 x 2 fits into a row of 5 pixels";
  EXPECT_THROW(MaxPool2d(0).forward(x), std::invalid_argument) << "a square of 0 x 0 has no pixels";
  const Variable view(counting({1, 1, 2, 4}).transpose(2, 3), true);  // rows 0 4, 1 5, 2 6, 3 7
  const Variable of_view = layer.forward(view);
  EXPECT_EQ(of_view.value().values(), (Values{5, 7}))
      << "images may be a view: data() alone is not their order";
  backward(sum_all(of_view));
  EXPECT_EQ(view.grad().values(), (Values{0, 0, 0, 1, 0, 0, 0, 1}))
      << "dy may be a view, too: sum_all passes one number on, expanded";
}

TEST(Softmax, StaysFinite) {
  const Variable x(Tensor({2, 3}, {1, 2, 3, -1, 0, 1}), true);
  const Values y = log_softmax(x).value().values();
  const double expected = -std::log(1 + std::exp(-1) + std::exp(-2));
  EXPECT_NEAR(y[2], expected, 1e-6);
  EXPECT_NEAR(y[0], expected - 2, 1e-6);
  EXPECT_NEAR(y[5], expected, 1e-6) << "the softmax is along the last axis, for each row alone";
  const Tensor large = log_softmax(Variable(Tensor({1, 2}, {1000, 0}))).value();
  ASSERT_TRUE(std::isfinite(large.values()[0]))
      << "exp(1000) overflows: subtract the largest element of the row first";
  EXPECT_EQ(large.values(), (Values{0, -1000}))
      << "log(exp(-1000)) is -infinity: the logarithm of the softmax is x - log(sum(exp(x)))";
  const Tensor low = log_softmax(Variable(Tensor({1, 2}, {-1000, -1000}))).value();
  EXPECT_NEAR(low.values()[0], -std::log(2.0), 1e-6)
      << "exp(-1000) is 0, and log(0) infinite: subtract the largest element first";
  const Tensor both = log_softmax(Variable(Tensor({2, 2}, {1000, 1000, -1000, -1000}))).value();
  EXPECT_NEAR(both.values()[2], -std::log(2.0), 1e-6)
      << "each row needs its own largest element: that of all rows is too large for this one";
  const Tensor x3 = random_tensor({2, 3, 4}, 1);
  EXPECT_LT(distance(log_softmax(Variable(x3)).value(), log_softmax(Variable(x3.reshape({6, 4}))).value()),
            1e-5)
      << "the last axis of [2, 3, 4] is axis 2, not axis 1: the same numbers as for its six rows";
  gradcheck_op("log_softmax", {random_tensor({2, 4}, 1)},
               [](const std::vector<Variable>& v) { return log_softmax(v[0]); });
}

TEST(Losses, AreMeansOverTheBatch) {
  const Variable logits(random_tensor({3, 4}, 1), true);
  const std::vector<int> labels{2, 0, 3};
  const Variable loss = cross_entropy(logits, labels);
  EXPECT_EQ(loss.shape(), Shape{});
  const Values log_p = log_softmax(Variable(logits.value())).value().values();
  const float expected = -(log_p[2] + log_p[4] + log_p[11]) / 3;
  EXPECT_GT(loss.value().item(), 0) << "the loss is minus the logarithm: probabilities are below 1";
  EXPECT_NEAR(loss.value().item(), expected, 1e-6)
      << "the mean over the rows, so that a larger batch is not a larger loss";
  backward(loss);
  const Values gradient = logits.grad().values();
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_NEAR(gradient[i], (std::exp(log_p[i]) - (i == 2 || i == 4 || i == 11)) / 3, 1e-6)
        << "d(loss)/d(logit) is (p - 1) / n at the label, p / n elsewhere";
  logits.clear_grad();
  backward(cross_entropy(logits, labels), 8);
  EXPECT_NEAR(logits.grad().values()[0], 8 * gradient[0], 1e-5)
      << "with a seed of 8 all gradients are 8 times as large: the gradient of the choice must be multiplied "
         "by dy, though a loss mostly has dy = 1";
  EXPECT_NEAR(cross_entropy(Variable(Tensor({1, 10})), {3}).value().item(), std::log(10.0), 1e-6)
      << "an untrained guess among ten";
  EXPECT_EQ(cross_entropy(Variable(Tensor({1, 2}, {1000, 0})), {1}).value().item(), 1000)
      << "a probability of exp(-1000) costs 1000: neither the probability nor its logarithm is bounded";
  EXPECT_THROW(cross_entropy(logits, {0, 1, 4}), std::invalid_argument)
      << "label 4 of 4 classes: it would read another row";
  EXPECT_THROW(cross_entropy(logits, {0, 1, -1}), std::invalid_argument);
  EXPECT_THROW(cross_entropy(logits, {0, 1}), std::invalid_argument) << "two labels for three rows";
  EXPECT_THROW(cross_entropy(Variable(Tensor({0, 4})), {}), std::invalid_argument)
      << "no rows have no mean: 0 / 0";
  const Variable x(Tensor({2, 2}, {1, 2, 3, 4}), true), target(Tensor({2, 2}, {1, 1, 1, 1}));
  EXPECT_FLOAT_EQ(mse(x, target).value().item(), 3.5f) << "(0 + 1 + 4 + 9) / 4: the mean over all elements";
  EXPECT_THROW(mse(Variable(Tensor({2, 1})), Variable(Tensor({2}))), std::invalid_argument)
      << "[2, 1] - [2] is broadcast to [2, 2]: the mean of differences between samples that do not belong "
         "together; refuse shapes that are not equal";
  backward(mse(x, target));
  EXPECT_EQ(x.grad().values(), (Values{0, 0.5, 1, 1.5})) << "2 (x - target) / 4";
  gradcheck_op("mse, by x and by target", {random_tensor({3, 4}, 2), random_tensor({3, 4}, 3)},
               [](const std::vector<Variable>& v) { return mse(v[0], v[1]); });
}

}  // namespace
