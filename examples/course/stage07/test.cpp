#include <bit>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "half.h"

namespace engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ---- The formats, by their definition: slow, and exact in double.

struct Format {
  const char* name;
  int fraction_bits, smallest_exponent;  // subnormal numbers are multiples of 2^smallest_exponent
  std::uint16_t infinity;
  std::uint16_t (*to)(float);
  float (*from)(std::uint16_t);
};
constexpr Format kF16{"f16", 10, -24, 0x7c00, to_f16, from_f16};
constexpr Format kBf16{"bf16", 7, -133, 0x7f80, to_bf16, from_bf16};

// Of bits without a sign. Infinity's are those of the number that would follow the largest.
double value_of(const Format& format, std::uint16_t bits) {
  const int exponent = bits >> format.fraction_bits, fraction = bits & ((1 << format.fraction_bits) - 1);
  if (exponent == 0) return std::ldexp(fraction, format.smallest_exponent);
  return std::ldexp((1 << format.fraction_bits) + fraction, format.smallest_exponent + exponent - 1);
}

std::string hex(unsigned bits) {
  std::ostringstream out;
  out << "0x" << std::hex << std::setw(4) << std::setfill('0') << bits;
  return out.str();
}

void check_every_pattern(const Format& format) {
  for (unsigned pattern = 0; pattern <= 0xffff; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern),
               size = static_cast<std::uint16_t>(pattern & 0x7fff);
    const float got = format.from(bits);
    const std::string where = std::string(format.name) + " " + hex(bits);
    ASSERT_EQ(std::signbit(got), pattern > 0x7fff) << where << " must keep its sign, also as zero or NaN";
    if (size > format.infinity) {
      ASSERT_TRUE(std::isnan(got)) << where
                                   << " is a NaN: all bits of the exponent are set, and one of the fraction";
      ASSERT_TRUE(std::isnan(format.from(format.to(got))))
          << where << ", a NaN, must be one after the way back";
      continue;
    }
    const double want =
        size == format.infinity ? std::numeric_limits<double>::infinity() : value_of(format, size);
    if (size != 0 && size < (1 << format.fraction_bits)) {
      ASSERT_EQ(std::fabs(got), want)
          << where << " is subnormal: its exponent's bits are 0, so no 1 stands before its fraction";
    }
    ASSERT_EQ(std::fabs(got), want) << where;
    ASSERT_EQ(hex(format.to(got)), hex(bits)) << where << " must be itself after the way to float and back";
  }
}

// x lies between the neighbours `below` and `above`; which is right is `want`.
void check_rounding(const Format& format, float x, unsigned below, unsigned want, const char* place) {
  for (const unsigned sign : {0u, 0x8000u}) {
    const unsigned got = format.to(sign ? -x : x), right = sign | want;
    if (got == right) continue;
    std::string why = "it must become " + hex(right) + ", but became " + hex(got);
    const unsigned size = got & 0x7fff, fraction = 1u << format.fraction_bits;
    if ((got & 0x8000) != sign)
      why += ": the sign was lost";
    else if (want != 0 && want < fraction && size == 0)
      why += ": below its smallest normal number the format has subnormal ones, and this was flushed to zero";
    else if (size == below && want == below + 1)
      why += ": the bits that do not fit were cut off, not rounded";
    else if (size == below + 1 && want == below)
      why += ": it was rounded up; of two equally near numbers, that is right only if its last bit is 0";
    FAIL() << format.name << ": " << std::hexfloat << (sign ? -x : x) << " is " << place << " "
           << hex(sign | below) << " and the next; " << why;
  }
}

void check_every_middle(const Format& format) {
  for (unsigned below = 0; below < format.infinity; ++below) {
    const double low = value_of(format, static_cast<std::uint16_t>(below));
    const double high = value_of(format, static_cast<std::uint16_t>(below + 1));
    const auto middle = static_cast<float>(low + (high - low) / 2);  // exact: a float has more bits than that
    ASSERT_NO_FATAL_FAILURE(
        check_rounding(format, std::nextafter(middle, 0.0f), below, below, "just below the middle of"));
    ASSERT_NO_FATAL_FAILURE(check_rounding(format, middle, below, below + below % 2, "exactly between"));
    ASSERT_NO_FATAL_FAILURE(check_rounding(format, std::nextafter(middle, kInfinity), below, below + 1,
                                           "just above the middle of"));
  }
}

void check_beyond(const Format& format) {
  for (const float x :
       {kInfinity, std::numeric_limits<float>::max(), -kInfinity, -std::numeric_limits<float>::max()})
    EXPECT_EQ(hex(format.to(x)), hex(format.infinity | (x < 0 ? 0x8000u : 0u)))
        << format.name << " of " << x << " must be infinite";
  for (const std::uint32_t bits : {0x7f80'0001u, 0x7fc0'0000u, 0x7fff'ffffu, 0xff80'0001u, 0xffff'ffffu}) {
    const std::uint16_t got = format.to(std::bit_cast<float>(bits));
    EXPECT_GT(got & 0x7fff, format.infinity)
        << format.name << ": the NaN with the bits " << std::hex << bits << " became " << hex(got)
        << ", which is no NaN: a bit of the fraction must remain, and no carry run into the exponent";
    EXPECT_EQ(got >> 15, static_cast<int>(bits >> 31)) << format.name << ": a NaN keeps its sign";
  }
}

TEST(F16, EveryPatternIsItsNumber) {
  check_every_pattern(kF16);
}
TEST(F16, RoundsToTheNearestOrElseTheEven) {
  check_every_middle(kF16);
}
TEST(F16, InfinitiesAndNans) {
  check_beyond(kF16);
  EXPECT_EQ(hex(to_f16(std::nextafter(65520.0f, 0.0f))), hex(0x7bff))
      << "below 65520, 65504 is the nearest: not yet an overflow";
  EXPECT_EQ(hex(to_f16(0x1p16f)), hex(0x7c00)) << "2^16 has no f16";
  EXPECT_EQ(hex(to_f16(0x1p-149f)), hex(0)) << "the smallest float is far below half of the smallest f16";
}
TEST(Bf16, EveryPatternRoundsAndReturns) {
  check_every_pattern(kBf16);
  check_every_middle(kBf16);
  check_beyond(kBf16);
}

// ---- Rounding on the tape.

const float kFine = 1 + 0x1p-12f;  // no f16: rounded, it is 1

TEST(RoundTo, RoundsTheValueAndTheGradient) {
  const Variable x(Tensor({3}, {kFine, 0x1p-26f, 70000}), true);
  const Variable y = round_to(x, Precision::f16);
  EXPECT_EQ(y.value().values(), (std::vector<float>{1, 0, kInfinity}));
  EXPECT_EQ(x.value().values()[0], kFine) << "round_to must leave its input as it is";
  backward(sum_all(mul(y, Variable(Tensor({3}, {kFine, 3, 0x1p-26f})))));
  ASSERT_EQ(x.grad().shape(), Shape{3}) << "the gradient must pass through a rounding";
  const std::vector<float> gradient = x.grad().values();
  EXPECT_NE(gradient[1], 0)
      << "the gradient of a rounding was taken to be 0, as the slope of a staircase is; nothing could learn "
         "then. "
         "The rounding stands for a store to memory, and the gradient passes as through y = x";
  EXPECT_EQ(gradient[0], 1)
      << "the gradient is stored in f16 as well: it must be rounded, but 1 + 2^-12 passed";
  EXPECT_EQ(gradient[2], 0) << "a gradient of 2^-26 is 0 in f16";
  const Variable same(Tensor({1}, {kFine}), true);
  EXPECT_EQ(round_to(same, Precision::f32).value().item(), kFine) << "f32 is what a float is already";
  EXPECT_EQ(round_to(Tensor({1}, {1 + 0x1p-9f}), Precision::bf16).item(), 1)
      << "bf16 has seven bits of fraction";
}

// y = factor x, which remembers what it has read: the value, and the gradient of y.
struct Spy final : public Module {
  explicit Spy(float f) : factor(f) {}
  Variable forward(const Variable& x) override {
    value = x.value().clone();
    return record(map(x.value(), [this](float v) { return v * factor; }), {x}, [this](const Tensor& dy) {
      gradient = dy.clone();
      return std::vector<Tensor>{map(dy, [this](float g) { return g * factor; })};
    });
  }
  std::vector<std::pair<std::string, Variable>> parameters() const override { return {{"weight", weight}}; }
  std::vector<std::pair<std::string, Tensor>> buffers() const override { return {{"mean", mean}}; }
  float factor;
  Variable weight{Tensor({1}, {1}), true};
  Tensor value, gradient, mean = Tensor({1});
};

TEST(Rounded, StoresWhatComesInAndWhatGoesOut) {
  const auto spy = std::make_shared<Spy>(kFine);
  Rounded layer(spy, Precision::f16);
  const Variable x(Tensor({1}, {kFine}), true);
  const Variable y = layer.forward(x);
  EXPECT_EQ(spy->value.item(), 1) << "the layer must read its input rounded";
  EXPECT_EQ(y.value().item(), 1) << "the layer's output must be rounded";
  backward(sum_all(scale(y, kFine)));
  EXPECT_EQ(spy->gradient.item(), 1)
      << "the gradient that a layer gets was stored before: it must be rounded";
  EXPECT_EQ(x.grad().item(), 1) << "the gradient that a layer gives is stored: it must be rounded";
  ASSERT_EQ(layer.parameters().size(), 1u);
  EXPECT_EQ(layer.parameters()[0].first, "weight")
      << "names stay those of the layer, so that checkpoints fit with and without rounding";
  EXPECT_TRUE(layer.parameters()[0].second.same_as(spy->weight));
  ASSERT_EQ(layer.buffers().size(), 1u) << "the layer's buffers belong to the network's state, too";
  EXPECT_TRUE(layer.buffers()[0].second.shares_memory_with(spy->mean));
  layer.train(false);
  EXPECT_FALSE(layer.training()) << "its mode is that of the layer";
  EXPECT_FALSE(spy->training())
      << "train(false) must reach the layer: a batch norm would still use the batch's statistics";
}

// ---- Masters.

std::shared_ptr<Module> one_weight(float value) {
  const auto layer = std::make_shared<Linear>(1, 1, 1);
  layer->parameters()[0].second.value().data()[0] = value;
  return layer;
}
float weight_of(const Module& network) {
  return network.parameters()[0].second.value().item();
}

TEST(MasterWeights, SmallUpdatesAddUp) {
  const auto network = one_weight(kFine);
  MasterWeights masters(*network, Precision::f16);
  ASSERT_EQ(masters.parameters().size(), 2u);
  EXPECT_EQ(masters.parameters()[0].first, network->parameters()[0].first)
      << "master and weight have one name";
  const Variable master = masters.parameters()[0].second;
  EXPECT_TRUE(master.requires_grad()) << "an optimizer changes leaves that require a gradient";
  EXPECT_EQ(weight_of(*network), 1) << "the network reads rounded weights, from the beginning";
  EXPECT_EQ(master.value().item(), kFine)
      << "the master was rounded, too: it must have memory of its own, for a copy of a Tensor shares it";
  SGD sgd(masters.parameters(), {.momentum = 0});
  for (int step = 0; step < 1000; ++step) {
    network->parameters()[0].second.grad() = Tensor({1, 1}, {-0x1p-12f});
    masters.take_gradients();
    sgd.step(1);
    sgd.clear_grads();
    masters.give_values();
  }
  EXPECT_NE(weight_of(*network), 1)
      << "a thousand updates of 2^-12 were rounded away one by one: the optimizer must change the masters";
  EXPECT_EQ(master.value().item(), 1 + 1001 * 0x1p-12f);
  EXPECT_EQ(weight_of(*network), from_f16(to_f16(1 + 1001 * 0x1p-12f)))
      << "after a step the network must have the masters' values, rounded";
}

TEST(MasterWeights, TakeGradientsAsTheyAreStored) {
  const auto network = one_weight(1);
  network->parameters()[0].second.grad() = Tensor({1, 1}, {3});
  MasterWeights masters(*network, Precision::f16);
  EXPECT_EQ(network->parameters()[0].second.grad().numel(), 0)
      << "the network had a gradient from before, and the first pass would add to it: the constructor must "
         "clear it";
  network->parameters()[0].second.grad() = Tensor({1, 1}, {kFine});
  masters.take_gradients();
  const Variable master = masters.parameters()[0].second;
  ASSERT_EQ(master.grad().numel(), 1);
  EXPECT_EQ(master.grad().item(), 1) << "a parameter's gradient is stored in f16 as well: it must be rounded";
  EXPECT_EQ(network->parameters()[0].second.grad().numel(), 0)
      << "the network's gradient must be cleared: otherwise the next backward pass adds to it";
  EXPECT_EQ(masters.parameters()[1].second.grad().numel(), 0)
      << "the bias had no gradient, so its master has none";
  network->parameters()[0].second.grad() = Tensor({1, 1}, {4});
  masters.take_gradients();
  EXPECT_EQ(master.grad().item(), 4) << "the master had the gradient 1 of the step before, and the network's "
                                        "is 4: it must be replaced, not added to";
  network->parameters()[0].second.grad() = Tensor({1, 1}, {70000});
  masters.take_gradients();
  EXPECT_EQ(master.grad().item(), kInfinity)
      << "a gradient that f16 cannot hold is infinite, so that the scaler sees it; "
         "and the one of the step before must be gone";
  masters.take_gradients();
  EXPECT_EQ(master.grad().numel(), 0)
      << "no gradient came, so the master must have none: a gradient of the last step was left";
}

// ---- The scaler.

// Notes what it is asked for, and changes nothing.
struct Recorder final : public Optimizer {
  using Optimizer::Optimizer;
  void step(float lr) override {
    rates.push_back(lr);
    double sum = 0;
    for (const auto& [name, parameter] : parameters())
      for (const float g : parameter.grad().values()) sum += static_cast<double>(g) * g;
    norms.push_back(std::sqrt(sum));
  }
  std::vector<std::pair<std::string, Tensor>> state() const override { return {}; }
  std::vector<float> rates;
  std::vector<double> norms;
};

Parameters one_parameter() {
  return {{"w", Variable(Tensor({2}, {1, 1}), true)}};
}

bool attempt(LossScaler& scaler, Optimizer& optimizer, float gradient) {
  optimizer.parameters()[0].second.grad() = Tensor({2}, {0, gradient});
  scaler.unscale(optimizer.parameters());
  return scaler.step(optimizer, 1);
}

const LossScaler::Options kRules{.initial = 8, .floor = 2, .ceiling = 16, .growth_interval = 3};

TEST(LossScaler, GrowsAndBacksOff) {
  Recorder optimizer(one_parameter());
  LossScaler scaler(kRules);
  EXPECT_EQ(scaler.scale(), 8);
  for (const float before : {8.0f, 8.0f, 8.0f}) {
    EXPECT_EQ(scaler.scale(), before) << "the scale grows after 3 applied steps in a row, not before";
    EXPECT_TRUE(attempt(scaler, optimizer, 4)) << "all gradients were finite: the step must be applied";
  }
  EXPECT_EQ(optimizer.norms.size(), 3u);
  EXPECT_EQ(optimizer.norms[0], 0.5) << "the optimizer must get the true gradient, 4 / 8";
  EXPECT_EQ(scaler.scale(), 16) << "after 3 applied steps in a row the scale doubles";
  EXPECT_EQ(scaler.state()[1].second.item(), 0)
      << "the scale has grown: the count of applied steps in a row begins again at 0";
  for (int i = 0; i < 3; ++i) attempt(scaler, optimizer, 1);
  EXPECT_EQ(scaler.scale(), 16) << "the ceiling";
  for (const float bad : {kInfinity, -kInfinity, kNan}) {
    const float before = scaler.scale();
    EXPECT_FALSE(attempt(scaler, optimizer, bad))
        << "a gradient of " << bad << " is not finite: the step must be skipped";
    EXPECT_EQ(scaler.scale(), before / 2) << "after an overflow the scale is halved";
  }
  attempt(scaler, optimizer, kInfinity);
  EXPECT_EQ(scaler.scale(), 2) << "the floor";
  EXPECT_EQ(optimizer.rates.size(), 6u)
      << "the optimizer's step was called, though a gradient was not finite";
  attempt(scaler, optimizer, 1);
  attempt(scaler, optimizer, 1);
  attempt(scaler, optimizer, kInfinity);
  attempt(scaler, optimizer, 1);
  EXPECT_EQ(scaler.scale(), 2) << "an overflow ends the row of applied steps: counting begins again";
  attempt(scaler, optimizer, 1);
  attempt(scaler, optimizer, 1);
  EXPECT_EQ(scaler.scale(), 4) << "after one bad batch the scale must not stay low for ever";
  attempt(scaler, optimizer, 1);
  attempt(scaler, optimizer, 1);
  EXPECT_EQ(scaler.scale(), 4) << "it has grown: from then on, 3 applied steps are counted again";
  attempt(scaler, optimizer, 1);
  EXPECT_EQ(scaler.scale(), 8);
  LossScaler other({.initial = 4, .growth = 4, .backoff = 0.125f, .floor = 0.25f, .growth_interval = 1});
  attempt(other, optimizer, 1);
  EXPECT_EQ(other.scale(), 16) << "with growth = 4: a scale of 4 grows to 16";
  attempt(other, optimizer, kInfinity);
  EXPECT_EQ(other.scale(), 2) << "with backoff = 1/8: a scale of 16 becomes 2";
  attempt(other, optimizer, kInfinity);
  EXPECT_EQ(other.scale(), 0.25f) << "with backoff = 1/8 and floor = 1/4: a scale of 2 becomes 1/4";
}

TEST(LossScaler, OneFiniteGradientDoesNotHideAnother) {
  const Parameters two{{"a", Variable(Tensor({1}, {1}), true)}, {"b", Variable(Tensor({1}, {1}), true)}};
  Recorder optimizer(two);
  LossScaler scaler(kRules);
  two[0].second.grad() = Tensor({1}, {kNan});
  two[1].second.grad() = Tensor({1}, {8});
  EXPECT_FALSE(scaler.unscale(two)) << "one NaN among the gradients is enough, wherever it is";
  EXPECT_FALSE(scaler.step(optimizer, 1));
  two[0].second.clear_grad();
  two[1].second.grad() = Tensor({1}, {4});
  EXPECT_TRUE(scaler.unscale(two))
      << "the overflow of the last step must be forgotten; a parameter without a gradient is none";
  EXPECT_EQ(two[1].second.grad().item(), 1) << "after an overflow, gradients are divided by half as much";
  EXPECT_EQ(two[0].second.grad().numel(), 0) << "a parameter without a gradient must stay without one";
  scaler.step(optimizer, 1);
  two[0].second.grad() = Tensor({1}, {1e25f});
  EXPECT_TRUE(scaler.unscale(two))
      << "1e25 is finite, but its square in float is not: ask each gradient, not "
         "a sum of squares in float";
}

TEST(LossScaler, NeverStepsBeforeItHasUnscaled) {
  Recorder optimizer(one_parameter());
  LossScaler scaler(kRules);
  optimizer.parameters()[0].second.grad() = Tensor({2}, {8, 8});
  EXPECT_THROW(scaler.step(optimizer, 1), std::logic_error)
      << "the gradients are still 8 times too large: step must refuse";
  EXPECT_TRUE(optimizer.rates.empty()) << "the optimizer must not have made a step";
  scaler.unscale(optimizer.parameters());
  EXPECT_THROW(scaler.unscale(optimizer.parameters()), std::logic_error)
      << "unscaled twice, gradients are 8 times too small";
  EXPECT_TRUE(scaler.step(optimizer, 1));
  EXPECT_THROW(scaler.step(optimizer, 1), std::logic_error) << "the next step needs an unscale() of its own";
}

TEST(LossScaler, ContinuesFromItsState) {
  Recorder optimizer(one_parameter());
  LossScaler first(kRules), second(kRules);
  for (const float gradient : {1.0f, kInfinity, 1.0f, 1.0f}) attempt(first, optimizer, gradient);
  ASSERT_EQ(first.state().size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(first.state()[i].first, (std::vector<std::string>{"scale", "applied"}[i]));
    copy(first.state()[i].second, second.state()[i].second);
  }
  EXPECT_EQ(second.scale(), 4)
      << "the scale must be what its state says: a number kept beside the tensor is not in a checkpoint";
  attempt(second, optimizer, 1);
  EXPECT_EQ(second.scale(), 8) << "two of three applied steps were in the state: the third must let the "
                                  "scale grow, as without a break";
}

// ---- A step, and a training.

const Dataset& digits(bool training) {
  static const Dataset both[] = {read_digits("digits.csv", false), read_digits("digits.csv", true)};
  return both[training];
}
Dataset first_digits(std::int64_t n) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < n; ++i) order.push_back(i);
  return batch_of(digits(true), order, 0, n);
}

// Its `between` sees the activations' gradients.
struct Network {
  explicit Network(Precision precision) {
    const auto layer = [&](std::int64_t in, std::int64_t out, std::uint64_t seed) {
      return std::make_shared<Rounded>(std::make_shared<Linear>(in, out, seed), precision);
    };
    all = std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
        std::make_shared<Flatten>(), layer(64, 64, 1), std::make_shared<ReLU>(), between, layer(64, 10, 2)});
  }
  std::shared_ptr<Spy> between = std::make_shared<Spy>(1.0f);
  std::shared_ptr<Module> all;
};

std::vector<float> values_of(const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::vector<float> all;
  for (const auto& [name, tensor] : tensors)
    for (const float value : tensor.values()) all.push_back(value);
  return all;
}
std::vector<float> values_of(const Parameters& parameters) {
  std::vector<float> all;
  for (const auto& [name, parameter] : parameters)
    for (const float value : parameter.value().values()) all.push_back(value);
  return all;
}

TEST(MixedStep, SkippedItChangesNothing) {
  const Network network(Precision::f16);
  MasterWeights masters(*network.all, Precision::f16);
  AdamW adam(masters.parameters(), {.weight_decay = 0});
  LossScaler scaler({.initial = 0x1p24f});
  const Dataset batch = first_digits(16);
  const std::vector<float> before = values_of(masters.parameters()), state = values_of(adam.state());
  const std::vector<float> network_before = values_of(network.all->parameters());
  const MixedStep skipped = mixed_step(*network.all, masters, adam, scaler, batch, 0.125f);
  EXPECT_FALSE(skipped.applied)
      << "with a scale of 2^24 the logits' gradients exceed 65504: the step must be skipped";
  EXPECT_LT(skipped.loss, 100) << "the loss that a step reports must not be the scaled one";
  EXPECT_EQ(values_of(masters.parameters()), before) << "a skipped step changed the masters";
  EXPECT_EQ(values_of(network.all->parameters()), network_before)
      << "a skipped step changed the network's weights";
  EXPECT_EQ(values_of(adam.state()), state)
      << "a skipped step changed the optimizer's state: its moments, or its count of steps";
  EXPECT_EQ(scaler.scale(), 0x1p23f);
  for (const Parameters& parameters : {masters.parameters(), network.all->parameters()})
    for (const auto& [name, parameter] : parameters)
      EXPECT_EQ(parameter.grad().numel(), 0)
          << "after a skipped step, too, " << name << " must have no gradient";
  int attempts = 1;
  while (attempts < 20 && !mixed_step(*network.all, masters, adam, scaler, batch, 0.125f).applied) ++attempts;
  EXPECT_LT(attempts, 20) << "the scale was halved 20 times, and no step was applied";
  const std::vector<float> after = values_of(masters.parameters());
  float largest = 0;
  for (std::size_t i = 0; i < after.size(); ++i)
    largest = std::fmax(largest, std::fabs(after[i] - before[i]));
  EXPECT_NEAR(largest, 0.125f, 1e-3)
      << "Adam's first applied step is as long as the learning rate, however many were skipped before it";
  for (const auto& [name, parameter] : masters.parameters())
    EXPECT_EQ(parameter.grad().numel(), 0)
        << "after a step, " << name << " must have no gradient: the next one would be added to it";
}

TEST(MixedStep, ClipsTheUnscaledGradient) {
  const Network network(Precision::f16);
  MasterWeights masters(*network.all, Precision::f16);
  Recorder recorder(masters.parameters());
  LossScaler scaler({.initial = 1024});
  const Dataset batch = first_digits(16);
  mixed_step(*network.all, masters, recorder, scaler, batch, 1);
  mixed_step(*network.all, masters, recorder, scaler, batch, 1, 0.125f);
  ASSERT_EQ(recorder.norms.size(), 2u);
  ASSERT_GT(recorder.norms[0], 0.25) << "without a limit the gradient's norm is larger than this";
  EXPECT_LT(recorder.norms[0], 100) << "the optimizer got the gradient of the scaled loss";
  EXPECT_GT(recorder.norms[1], 0.125 / 100)
      << "the norm was limited before the gradients were unscaled: the limit was 1024 times too low";
  EXPECT_NEAR(recorder.norms[1], 0.125, 1e-3) << "the norm of the true gradient must be limited";
}

TEST(FitMixed, InF32ItIsFit) {
  const Dataset data = first_digits(256);
  const FitOptions options{.epochs = 2, .warmup = 3};
  const Network plain(Precision::f32), mixed(Precision::f32);
  SGD plain_sgd(plain.all->parameters(), {});
  const std::vector<double> losses = fit(*plain.all, plain_sgd, data, options);
  MasterWeights masters(*mixed.all, Precision::f32);
  SGD mixed_sgd(masters.parameters(), {});
  LossScaler scaler({.initial = 1024});
  mixed.all->train(false);
  const MixedReport report = fit_mixed(*mixed.all, masters, mixed_sgd, scaler, data, options);
  EXPECT_TRUE(mixed.all->training()) << "as fit() does, fit_mixed() must switch the network to training";
  EXPECT_THROW(fit_mixed(*mixed.all, masters, mixed_sgd, scaler, first_digits(10), options),
               std::invalid_argument)
      << "as fit() does, fit_mixed() must refuse ten samples, which are no batch of 32";
  EXPECT_EQ(report.skipped, 0) << "in f32 nothing overflows here";
  ASSERT_EQ(report.losses.size(), losses.size());
  EXPECT_NEAR(report.losses[1], losses[1], 1e-6) << "the losses reported must be the true ones, not scaled";
  EXPECT_EQ(values_of(mixed.all->parameters()), values_of(plain.all->parameters()))
      << "in f32 nothing is rounded, and to multiply and divide by a power of two is exact: fit_mixed must "
         "end with the very bits of "
         "fit. The order of samples, the learning rates or the unscaling differ";
}

TEST(FitMixed, LearningRatesCountAppliedSteps) {
  const Network network(Precision::f16);
  MasterWeights masters(*network.all, Precision::f16);
  Recorder recorder(masters.parameters());
  LossScaler scaler({.initial = 0x1p24f});
  const FitOptions options{.epochs = 2, .batch_size = 16, .warmup = 5};
  const MixedReport report = fit_mixed(*network.all, masters, recorder, scaler, first_digits(256), options);
  EXPECT_GT(report.skipped, 1) << "a scale of 2^24 is too large for several steps";
  ASSERT_EQ(report.losses.size(), 2u);
  EXPECT_NEAR(report.losses[0], report.losses[1], 1e-3)
      << "the weights did not change, and both epochs have the same 256 samples: the means of their losses "
         "must be equal. The loss of a skipped step counts, too";
  ASSERT_EQ(static_cast<std::int64_t>(recorder.rates.size()) + report.skipped, 32)
      << "each of 32 batches is a step, applied or skipped";
  for (std::size_t i = 0; i < recorder.rates.size(); ++i)
    ASSERT_EQ(recorder.rates[i], cosine_rate(options.lr, static_cast<std::int64_t>(i), 5, 32))
        << "applied step " << i << " must have the schedule's rate " << i
        << ": skipped steps were counted, so the warm-up lost its beginning";
}

double share_of_zeros(const std::vector<float>& of, const std::vector<float>& where) {
  double zeros = 0, all = 0;
  for (std::size_t i = 0; i < of.size(); ++i)
    if (where[i] != 0) all += 1, zeros += of[i] == 0;
  return zeros / all;
}

TEST(Digits, GradientsVanishWithoutAScaleAndReturnWithOne) {
  const Network exact(Precision::f32), half(Precision::f16);
  SGD sgd(exact.all->parameters(), {});
  fit(*exact.all, sgd, digits(true), {.epochs = 8, .lr = 0.1f});
  for (std::size_t i = 0; i < half.all->parameters().size(); ++i)
    copy(exact.all->parameters()[i].second.value(), half.all->parameters()[i].second.value());
  const auto gradients = [&](const Network& network, float seed) {
    backward(cross_entropy(network.all->forward(Variable(digits(true).images)), digits(true).labels), seed);
    return network.between->gradient.values();
  };
  const std::vector<float> truth = gradients(exact, 1), lost = gradients(half, 1),
                           scaled = gradients(half, 65536);
  const double without = share_of_zeros(lost, truth), with = share_of_zeros(scaled, truth);
  RecordProperty("zeros_without", std::to_string(without));
  RecordProperty("zeros_with", std::to_string(with));
  EXPECT_GT(without, 0.1)
      << "of the activations' gradients that are not 0 in f32, only the share " << without
      << " is 0 in f16 without a scale: gradients are not rounded where a layer stores them";
  EXPECT_LT(with, without / 10)
      << "with a loss times 65536, the share " << with << " is still 0, and without it was " << without
      << ": backward must begin with the scale, so that gradients are large before they are rounded";
}

TEST(Digits, ReachTheSameAccuracy) {
  const FitOptions options{.epochs = 8, .lr = 0.1f};
  const Network exact(Precision::f32);
  SGD exact_sgd(exact.all->parameters(), {});
  fit(*exact.all, exact_sgd, digits(true), options);
  const double in_f32 = accuracy(*exact.all, digits(false));
  for (const Precision precision : {Precision::f16, Precision::bf16}) {
    const Network half(precision);
    MasterWeights masters(*half.all, precision);
    SGD sgd(masters.parameters(), {});
    LossScaler scaler({});
    fit_mixed(*half.all, masters, sgd, scaler, digits(true), options);
    const double in_half = accuracy(*half.all, digits(false));
    EXPECT_NEAR(in_half, in_f32, 0.0125)
        << (precision == Precision::f16 ? "f16" : "bf16") << " reached an accuracy of " << in_half << ", f32 "
        << in_f32 << "; they should differ by a few of 360 images at most";
  }
}

}  // namespace
}  // namespace engine
