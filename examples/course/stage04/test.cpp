#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "digits.h"
#include "optim.h"
#include "random.h"

namespace {

using namespace engine;
using Values = std::vector<float>;

Variable weight(float value) {
  return Variable(Tensor({1}, {value}), true);
}
void set_gradient(const Variable& p, float g) {
  p.grad() = Tensor({1}, {g});
}

Tensor find(const Optimizer& optimizer, const std::string& name) {
  for (const auto& [found, tensor] : optimizer.state())
    if (found == name) return tensor;
  throw std::runtime_error("state() must have a tensor called " + name);
}

/// Tensors that were handed out before a step see what the step did.
template <typename Optimizer> void steps_in_place(const std::string& average_name) {
  const Variable p = weight(1);
  Optimizer optimizer({{"p", p}}, {});
  const Tensor value = p.value(), average = find(optimizer, average_name), steps = find(optimizer, "steps");
  set_gradient(p, 2);
  optimizer.step(0.1f);
  EXPECT_NE(value.item(), 1) << "step() gave the parameter a new tensor: whoever holds the old one sees no "
                                "change. Write through value().data()";
  EXPECT_NE(average.item(), 0)
      << "what state() handed out before the step has not changed: write into its memory";
  EXPECT_EQ(steps.item(), 1) << "the same for steps";
}

TEST(Sgd, FollowsTheFormula) {
  const Variable p = weight(1), frozen = weight(5);
  SGD optimizer({{"p", p}, {"frozen", frozen}}, {0.9f, 0.5f});
  set_gradient(p, 2);
  optimizer.step(0.1f);
  EXPECT_GT(p.value().item(), 0.5)
      << "v begins with the whole gradient and the decay, 2 + 0.5 * 1: p = 1 - 0.1 * 2.5";
  EXPECT_FLOAT_EQ(p.value().item(), 0.75f)
      << "v = 0.9 * 0 + (2 + 0.5 * 1), p = 1 - 0.1 v: v is not multiplied by (1 - momentum)";
  set_gradient(p, -1);
  optimizer.step(0.2f);
  EXPECT_FLOAT_EQ(p.value().item(), 0.75f - 0.2f * (0.9f * 2.5f + (-1 + 0.5f * 0.75f)))
      << "the rate multiplies v, it is not in v: when it changes, the whole momentum changes with it";
  EXPECT_EQ(frozen.value().item(), 5) << "a parameter without a gradient stays as it is: no decay either";
  optimizer.clear_grads();
  EXPECT_EQ(p.grad().numel(), 0);
  const float before = p.value().item();
  optimizer.step(0.2f);
  EXPECT_EQ(p.value().item(), before) << "after clear_grads() there is no gradient, so nothing moves";
  steps_in_place<SGD>("p.momentum");
}

TEST(AdamW, CorrectsBothAverages) {
  for (const float g : {1e-3f, 0.5f, -20.0f}) {
    const Variable p = weight(1);
    AdamW optimizer({{"p", p}}, {0.9f, 0.999f, 1e-12f, 0});
    set_gradient(p, g);
    optimizer.step(0.01f);
    ASSERT_TRUE(std::isfinite(p.value().item())) << "1 - beta^0 is 0: t is 1 at the first step";
    const double moved = std::fabs(p.value().item() - 1) / 0.01;
    EXPECT_LT(moved, 2.5) << "the first step is " << moved
                          << " times the rate: neither average is corrected, or the square is not";
    EXPECT_GT(moved, 0.5) << "the first step is " << moved
                          << " times the rate: the mean is not corrected, the square is";
    EXPECT_NEAR(moved, 1, 1e-3) << "mean / sqrt(square) is 1 or -1 at the first step, whatever the gradient";
  }
  const Variable p = weight(1);
  AdamW optimizer({{"p", p}}, {0.9f, 0.999f, 0.5f, 0});
  double x = 1, m = 0, v = 0;
  for (int t = 1; t <= 50; ++t) {
    const double g = std::sin(0.7 * t) + 0.2;
    set_gradient(p, static_cast<float>(g));
    optimizer.step(0.01f);
    m = 0.9 * m + 0.1 * g, v = 0.999 * v + 0.001 * g * g;
    x -= 0.01 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 0.5);
    ASSERT_NEAR(p.value().item(), x, 2e-5) << "at step " << t
                                           << (t < 2 ? ": eps is added to the root of the corrected square"
                                                     : ": the correction must fade as t grows");
  }
}

TEST(AdamW, DecaysTheWeightNotTheGradient) {
  const Variable p = weight(1);
  AdamW optimizer({{"p", p}}, {0.9f, 0.999f, 1e-8f, 0.5f});
  set_gradient(p, 0);
  optimizer.step(0.01f);
  EXPECT_NEAR(p.value().item(), 0.995, 1e-6)
      << "without a gradient the weight shrinks by rate * decay; through the gradient it would "
         "move by the whole rate";
  optimizer.step(0.02f);
  EXPECT_NEAR(p.value().item(), 0.995 * 0.99, 1e-6) << "the decay is scaled by the rate";
  const Variable frozen = weight(5);
  AdamW of_none({{"frozen", frozen}}, {0.9f, 0.999f, 1e-8f, 0.5f});
  of_none.step(0.1f);
  EXPECT_EQ(frozen.value().item(), 5) << "a parameter without a gradient stays as it is: no decay either";
  steps_in_place<AdamW>("p.mean");
  EXPECT_EQ(AdamW({}, {}).state().size(), 1u) << "without parameters, the state is the number of steps";
}

template <typename Optimizer> void continues(const typename Optimizer::Options& options) {
  const auto train = [](const Variable& p, Optimizer& optimizer, int from, int to) {
    for (int step = from; step < to; ++step) {
      set_gradient(p, std::sin(static_cast<float>(step)));
      optimizer.step(0.1f);
    }
  };
  const Variable p = weight(1), q = weight(0);
  Optimizer whole({{"p", p}}, options), second({{"p", q}}, options);
  train(p, whole, 0, 3);
  copy(p.value(), q.value());
  const auto from = whole.state(), to = second.state();
  ASSERT_EQ(from.size(), to.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(from[i].first, to[i].first);
    copy(from[i].second, to[i].second);
  }
  EXPECT_EQ(find(second, "steps").item(), 3)
      << "what was copied into the tensors of state() has not reached the optimizer: state() must return its "
         "own memory, not copies";
  train(p, whole, 3, 6);
  train(q, second, 3, 6);
  EXPECT_EQ(p.value().item(), q.value().item()) << "an optimizer with the state of another must do the same, "
                                                   "to the last bit; state() must return its own memory";
}

TEST(Optimizers, ContinueFromTheirState) {
  continues<SGD>({0.9f, 0.01f});
  continues<AdamW>({});
  SGD sgd({{"0.weight", weight(1)}}, {});
  EXPECT_EQ(find(sgd, "0.weight.momentum").shape(), (Shape{1}));
  sgd.step(0.1f);
  EXPECT_EQ(find(sgd, "steps").item(), 1) << "steps counts calls of step(), also where no gradient came";
  AdamW adam({{"0.weight", weight(1)}}, {});
  adam.step(0.1f);
  EXPECT_EQ(find(adam, "steps").item(), 1) << "steps counts calls of step(), also where no gradient came";
  EXPECT_EQ(adam.state().size(), 3u) << "two averages, and the steps";
  EXPECT_EQ(find(adam, "0.weight.mean").shape(), (Shape{1}));
  EXPECT_EQ(find(adam, "0.weight.square").shape(), (Shape{1}));
}

TEST(Rate, WarmsUpAndFollowsACosine) {
  EXPECT_EQ(cosine_rate(2, 0, 10, 110), 0) << "the first step of the warmup has rate 0";
  EXPECT_FLOAT_EQ(cosine_rate(2, 5, 10, 110), 1) << "half of the warmup, half of the peak";
  EXPECT_FLOAT_EQ(cosine_rate(2, 10, 10, 110), 2) << "the peak comes right after the warmup";
  EXPECT_FLOAT_EQ(cosine_rate(2, 60, 10, 110), 1)
      << "the cosine begins after the warmup: half of its way is at step 60";
  EXPECT_NEAR(cosine_rate(2, 35, 10, 110), 1 + std::sqrt(0.5), 1e-5) << "a cosine, not a straight line";
  EXPECT_NEAR(cosine_rate(2, 110, 10, 110), 0, 1e-6);
  EXPECT_EQ(cosine_rate(2, 111, 10, 110), 0) << "after the end the rate stays 0: a cosine would rise again";
  EXPECT_FLOAT_EQ(cosine_rate(2, 0, 0, 100), 2) << "without a warmup it begins at the peak";
  EXPECT_EQ(cosine_rate(2, 10, 10, 10), 0) << "no step is left after the warmup: 0 / 0 is no rate";
}

TEST(Clip, ScalesAllGradientsByOneNorm) {
  const Variable a = weight(0), b = weight(0), none = weight(0);
  const Parameters parameters{{"a", a}, {"b", b}, {"none", none}};
  set_gradient(a, 3);
  set_gradient(b, 4);
  EXPECT_FLOAT_EQ(clip_grad_norm(parameters, 10), 5)
      << "sqrt(3 3 + 4 4): one norm over all parameters together";
  EXPECT_EQ(a.grad().item(), 3) << "a norm below the bound changes nothing";
  EXPECT_FLOAT_EQ(clip_grad_norm(parameters, 1), 5) << "the norm before";
  EXPECT_LT(a.grad().item(), 0.9)
      << "each gradient was clipped by its own norm: the direction of the step has changed";
  EXPECT_FLOAT_EQ(a.grad().item(), 0.6f);
  EXPECT_FLOAT_EQ(b.grad().item(), 0.8f);
  EXPECT_EQ(none.grad().numel(), 0) << "a parameter without a gradient has none afterwards";
  set_gradient(a, std::numeric_limits<float>::infinity());
  EXPECT_FALSE(std::isfinite(clip_grad_norm(parameters, 1)));
  EXPECT_FLOAT_EQ(b.grad().item(), 0.8f)
      << "infinity / infinity would make NaN of a, and 0 of all others: leave them to the caller";
}

TEST(Digits, AreReadAndSplit) {
  const Dataset training = read_digits("digits.csv", true), others = read_digits("digits.csv", false);
  ASSERT_EQ(training.size(), 1437);
  ASSERT_EQ(others.size(), 360) << "the other 360 of 1,797 images";
  ASSERT_EQ(training.images.shape(), (Shape{1437, 1, 8, 8}));
  const Values row = training.images.narrow(0, 0, 1).values();
  EXPECT_LE(*std::max_element(row.begin(), row.end()), 1) << "pixels are 0 to 16 in the file: divide by 16";
  EXPECT_FLOAT_EQ(row[2], 5.0f / 16) << "the first line begins with 0,0,5,13: rows of eight, from the left";
  EXPECT_FLOAT_EQ(row[10], 13.0f / 16) << "the second row of the first image is 0,0,13,15";
  EXPECT_EQ(std::vector<int>(training.labels.begin(), training.labels.begin() + 10),
            (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}))
      << "the label is the last number of a line";
  EXPECT_THROW(read_digits("no_such_file.csv", true), std::runtime_error);
  const auto refuses = [](const std::string& line) {  // and names the file
    std::ofstream("odd.csv") << line << '\n';
    try {
      read_digits("odd.csv", true);
    } catch (const std::runtime_error& error) {
      return std::string(error.what()).find("odd.csv") != std::string::npos;
    }
    return false;
  };
  std::string pixels;
  for (int i = 0; i < 64; ++i) pixels += "1,";
  EXPECT_FALSE(refuses(pixels + "9")) << "64 pixels and a digit are an image and its label";
  const std::string rest = pixels.substr(2);  // 63 pixels
  for (const auto& [line, why] : std::vector<std::pair<std::string, std::string>>{
           {"1,2,3", "three numbers are no image"},
           {rest + "9", "63 pixels and a digit: a pixel is missing, and the label was taken for one"},
           {pixels + "9,9", "a number too many: the line is of another file, or two lines became one"},
           {pixels + "x", "the label is no number"},
           {"?," + rest + "9", "a pixel is no number, and was read as 0, or as what stood there before"},
           {pixels + "9 or 4", "text stands behind the label"},
           {"17," + rest + "9", "a pixel of 17, above 16"},
           {"-1," + rest + "9", "a pixel of -1"},
           {pixels + "10", "a label of 10: there are ten digits, 0 to 9"},
           {pixels + "-1", "a label of -1"}})
    EXPECT_TRUE(refuses(line)) << "read_digits must throw std::runtime_error with the name of the file: "
                               << why;
  std::remove("odd.csv");
}

TEST(Epochs, HaveAnOrderEach) {
  const auto order = epoch_order(100, 1, 0);
  ASSERT_EQ(order.size(), 100u);
  EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), 100u)
      << "every sample comes once in an epoch";
  EXPECT_TRUE(*std::min_element(order.begin(), order.end()) == 0 &&
              *std::max_element(order.begin(), order.end()) == 99);
  EXPECT_EQ(epoch_order(100, 1, 0), order) << "seed and epoch decide: no state, no clock";
  EXPECT_NE(epoch_order(100, 1, 1), order) << "each epoch has an order of its own";
  EXPECT_NE(epoch_order(100, 2, 0), order);
  EXPECT_NE(epoch_order(100, 2, 3), epoch_order(100, 3, 2))
      << "seed + epoch gives two runs the same orders, a few epochs apart: mix them";
  std::vector<int> firsts(4);
  int stays = 0;
  for (int epoch = 0; epoch < 4000; ++epoch) {
    const auto four = epoch_order(4, 5, epoch);
    ++firsts[static_cast<std::size_t>(four[0])];
    stays += four[3] == 3;
  }
  EXPECT_NEAR(stays, 1000, 150)
      << "the last of four samples should stay last in every fourth order: its place "
         "is drawn from those up to itself, and itself is one of them";
  for (const int count : firsts)
    EXPECT_NEAR(count, 1000, 150) << "each of four samples should come first about as often";
  EXPECT_EQ(epoch_order(6, 1, 0), (std::vector<std::int64_t>{4, 1, 2, 5, 0, 3}))
      << "a good order, but not that of optim.h: for i = n - 1 down to 1, exchange order[i] with order[j], "
         "j = random_bits(random_bits(seed, epoch), i + 1) % (i + 1)";
  const Dataset data{Tensor({4, 1, 1, 2}, {0, 1, 2, 3, 4, 5, 6, 7}), {10, 11, 12, 13}};
  const Dataset batch = batch_of(data, {3, 1, 0, 2}, 1, 2);
  EXPECT_EQ(batch.images.shape(), (Shape{2, 1, 1, 2}));
  EXPECT_EQ(batch.images.values(), (Values{2, 3, 0, 1})) << "samples order[1] and order[2]: 1 and 0";
  EXPECT_EQ(batch.labels, (std::vector<int>{11, 10})) << "labels go with their images";
}

/// Returns what it is given, and remembers how it was called.
struct Spy final : Module {
  Variable weight{Tensor({}, {1}), true};
  bool trained = false, recorded = false;
  Values firsts;  // the first number of each sample, in the order in which they came
  Variable forward(const Variable& x) override {
    const Values values = x.value().values();
    for (std::size_t i = 0; i < values.size(); i += 3) firsts.push_back(values[i]);
    trained |= training();
    recorded |= is_recording();
    return mul(reshape(x, {x.shape()[0], 3}), weight);
  }
  std::vector<std::pair<std::string, Variable>> parameters() const override { return {{"weight", weight}}; }
};

TEST(Accuracy, LooksAndDoesNotTouch) {
  Spy spy;
  const Dataset data{Tensor({4, 3}, {1, 2, 3, 9, 5, 4, 0, 1, 0, -1, -2, -3}), {2, 0, 1, 1}};
  EXPECT_EQ(accuracy(spy, data), 0.75) << "the largest of each row: 2, 0, 1, 0, of which three are right";
  EXPECT_FALSE(spy.trained)
      << "accuracy() must switch to evaluation: batch norm would use and change the statistics of training";
  EXPECT_FALSE(spy.recorded) << "accuracy() must not record: a tape of all images would fill the memory";
  EXPECT_TRUE(spy.training()) << "afterwards the network trains again, as before";
  EXPECT_TRUE(is_recording());
  spy.train(false);
  accuracy(spy, data);
  EXPECT_FALSE(spy.training()) << "a network that was evaluating still is";
  Dataset last_five_wrong{Tensor({1, 3}, {1, 0, 0}).expand({40, 3}).clone(), std::vector<int>(40, 0)};
  for (std::size_t i = 35; i < 40; ++i) last_five_wrong.labels[i] = 1;
  EXPECT_EQ(accuracy(spy, last_five_wrong), 0.875)
      << "5 of 40 are wrong, and all among the last: images that fill no batch count, too";
}

TEST(Fit, IsTheSameEveryTime) {
  const Dataset all = read_digits("digits.csv", true);
  const Dataset data = batch_of(all, epoch_order(all.size(), 1, 0), 0, 100);
  std::vector<std::vector<double>> losses;
  for (int run = 0; run < 2; ++run) {
    const auto network = std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
        std::make_shared<Flatten>(), std::make_shared<Linear>(64, 10, 1)});
    SGD optimizer(network->parameters(), {});
    FitOptions options;
    options.epochs = 5, options.batch_size = 32, options.lr = 0.05f, options.warmup = 2;
    network->train(false);
    losses.push_back(fit(*network, optimizer, data, options));
    EXPECT_TRUE(network->training()) << "fit() trains: it must switch the network to training";
    EXPECT_EQ(find(optimizer, "steps").item(), 15)
        << "100 samples are three batches of 32; the last four are left out";
  }
  ASSERT_EQ(losses[0].size(), 5u) << "the mean loss of each epoch";
  EXPECT_EQ(losses[0], losses[1]) << "two runs of one program must agree to the last bit";
  EXPECT_LT(losses[0][0], 4) << "the mean of an epoch's losses, not their sum";
  EXPECT_LT(losses[0][4], 0.9 * losses[0][0]) << "the loss must fall";
  SGD none(Parameters{}, {});
  Spy spy;
  EXPECT_THROW(fit(spy, none, batch_of(all, epoch_order(10, 1, 0), 0, 10), FitOptions{}),
               std::invalid_argument)
      << "ten samples are no batch of 32";
}

TEST(Fit, StepsByTheGradientOfOneBatch) {
  const Dataset all = read_digits("digits.csv", true);
  const Dataset data = batch_of(all, epoch_order(all.size(), 1, 0), 0, 64);
  Sequential network({std::make_shared<Flatten>(), std::make_shared<Linear>(64, 10, 1)});
  SGD optimizer(network.parameters(), {});
  FitOptions options;
  options.epochs = 1, options.batch_size = 32, options.lr = 0, options.seed = 4;
  const std::vector<double> losses = fit(network, optimizer, data, options);
  const Variable p = network.parameters().at(0).second;
  const Tensor left = p.grad();
  const auto loss_of = [&](std::int64_t begin) {
    const Dataset batch = batch_of(data, epoch_order(64, 4, 0), begin, 32);
    return cross_entropy(network.forward(Variable(batch.images)), batch.labels);
  };
  optimizer.clear_grads();
  const Variable last = loss_of(32);
  const double mean = (double{loss_of(0).value().item()} + last.value().item()) / 2;
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_NEAR(losses[0], mean, 1e-5)
      << "the loss of an epoch is the mean of its batches' losses, not that of the last batch";
  backward(last);
  if (left.numel() == 0) return;  // cleared after the step, which is as good
  EXPECT_EQ(left.values(), p.grad().values())
      << "after two steps with rate 0, what is left must be the gradient of the second batch, samples 32 to "
         "63 of "
         "epoch_order(64, seed, 0): are gradients cleared between steps, and is each batch taken once?";
}

/// Steps nowhere, and remembers the rates.
struct Rates final : Optimizer {
  std::vector<float> rates;
  using Optimizer::Optimizer;
  void step(float lr) override { rates.push_back(lr); }
  std::vector<std::pair<std::string, Tensor>> state() const override { return {}; }
};

/// 12 samples, each of which begins with its own number; two epochs of three batches of 4.
void spy_on_fit(Spy& network, Rates& optimizer, const FitOptions& options) {
  Dataset data{Tensor({12, 1, 1, 3}), std::vector<int>(12, 1)};
  for (std::int64_t i = 0; i < 12; ++i) data.images.at({i, 0, 0, 0}) = static_cast<float>(i);
  fit(network, optimizer, data, options);
}

TEST(Fit, TakesTheRateOfEachStep) {
  Spy network;
  Rates optimizer(network.parameters());
  spy_on_fit(network, optimizer, {2, 4, 2, 0.5f, 7});
  ASSERT_EQ(optimizer.rates.size(), 6u) << "two epochs of three batches are six steps";
  for (std::size_t step = 0; step < 6; ++step) {
    const float rate = cosine_rate(0.5f, static_cast<std::int64_t>(step), 2, 6);
    ASSERT_FLOAT_EQ(optimizer.rates[step], rate)
        << "step " << step << " had rate " << optimizer.rates[step] << ", but cosine_rate(lr, " << step
        << ", warmup, 6) is " << rate
        << ": step counts on from epoch to epoch, and 6 is the number of steps of both epochs";
  }
}

TEST(Fit, TakesTheOrderOfEachEpoch) {
  Spy network;
  Rates optimizer(network.parameters());
  spy_on_fit(network, optimizer, {2, 4, 0, 0.5f, 7});
  ASSERT_EQ(network.firsts.size(), 24u) << "two epochs of 12 samples";
  const Values first(network.firsts.begin(), network.firsts.begin() + 12),
      second(network.firsts.begin() + 12, network.firsts.end());
  EXPECT_NE(first, second) << "epoch 1 had the order of epoch 0";
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    const auto order = epoch_order(12, 7, epoch);
    EXPECT_EQ(epoch == 0 ? first : second, Values(order.begin(), order.end()))
        << "epoch " << epoch << " must have the order epoch_order(12, seed, " << epoch << ')';
  }
}

TEST(Fit, ReadsDigitsAt97Percent) {
  const auto network = digits_network(2);
  SGD optimizer(network->parameters(), {0.9f, 2e-3f});
  FitOptions options;
  options.epochs = 6, options.batch_size = 16, options.lr = 0.1f, options.warmup = 44, options.seed = 2;
  const auto [training, others] = mixed_digits("digits.csv");
  const auto losses = fit(*network, optimizer, training, options);
  EXPECT_LT(losses.back(), 0.1);
  const double right = accuracy(*network, others);
  EXPECT_GE(right, 0.97) << "of the images it has not seen, the network must know 97 %, but knows "
                         << 100 * right << " %";
}

}  // namespace
