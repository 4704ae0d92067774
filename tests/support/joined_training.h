#pragma once

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/elementwise.h"
#include "autograd/loss.h"
#include "autograd/shape.h"
#include "data/digits.h"
#include "dist/ddp.h"
#include "dist/sync_batch_norm.h"
#include "dist/zero1.h"
#include "kernels/hash.h"
#include "nn/conv_norm.h"
#include "nn/linear.h"
#include "optim/sgd.h"
#include "optim/step.h"

// A small convolutional network on real digits, trained by several ranks and by one on their joined batch:
// what must be equal, and how far. Bodies that each rank runs.

namespace athanor::test {

/// Two convolutions, the second with a residual; with or without batch norms.
class DigitsNet final : public nn::Module {
 public:
  explicit DigitsNet(bool norms) : norms_(norms) {
    register_module("first", first);
    register_module("second", second.conv);
    if (norms) {
      register_module("first_norm", first_norm);
      register_module("second_norm", second.norm);
    }
    register_module("head", head);
    initialize(9);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = norms_ ? first_norm(first(x)) : relu(first(x));
    const Tensor z = norms_ ? second(y, y) : relu(second.conv(y) + y);
    return head(flatten(z));
  }

 private:
  bool norms_;
  nn::Conv2d first{1, 6, 3, {.stride = 2, .padding = 1}};
  nn::BatchNorm first_norm{6, {.activation = Activation::relu}};
  nn::ConvNorm second{6, 6, 3, {.padding = 1}, {.activation = Activation::relu}};
  nn::Linear head{4 * 4 * 6, 10};
};

struct DigitsBatch {
  Tensor images, labels;
};

/// Samples [first, first + count) of the digits, around and around.
inline DigitsBatch digits_batch(std::int64_t first, std::int64_t count) {
  static const std::unique_ptr<InMemoryDataset> data = digits(Split::train);
  std::vector<float> pixels;
  std::vector<std::int64_t> labels;
  std::vector<std::uint8_t> image(64);
  for (std::int64_t i = first; i < first + count; ++i) {
    labels.push_back(data->read(i % data->size(), image));
    for (const std::uint8_t value : image) pixels.push_back(static_cast<float>(value) / 128 - 1);
  }
  return {Tensor::from(pixels, {count, 8, 8, 1}), Tensor::from(labels, {count})};
}

struct DigitsModel {
  DigitsNet net;
  ParameterArena arena;
  Sgd sgd;
  StepBuffer step;

  DigitsModel(bool norms, const ArenaOptions& options)
      : net(norms),
        arena(net.parameters(), net.buffers(), options),
        sgd(arena, SgdOptions{.momentum = 0.9f}),
        step(options.device) {}

  /// The loss of a part of a batch, as its share of the mean over `all` samples.
  double pass(const DigitsBatch& batch, std::int64_t all) {
    arena.zero_grad();
    const Device device = arena.device();
    const Tensor loss =
        cross_entropy(net(batch.images.to(device)), batch.labels.to(device), 0, Reduction::sum);
    backward_scaled(loss, step, 1 / static_cast<float>(all));
    return loss.item() / static_cast<double>(all);
  }
  void update() {
    sgd.set_learning_rates(step, schedules::constant(0.02f));
    sgd.step(step);
    finish_step(step);
  }
  std::vector<double> weights() const {
    std::vector<double> values;
    for (const Parameter& parameter : arena.parameters()) {
      for (const double value : parameter.tensor.to_vector()) values.push_back(value);
    }
    return values;
  }
  std::vector<double> statistics() const {
    return arena.buffers().flat().defined() ? arena.buffers().flat().to_vector() : std::vector<double>();
  }
};

inline double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(apart / size);
}

/// What every rank says, in the order of ranks.
inline std::vector<double> from_all(dist::Communicator& comm, double mine) {
  const Tensor all = Tensor::zeros({comm.world_size()}, {DType::f64, kCpu});
  all.data<double>()[comm.rank()] = mine;
  const Tensor there = all.to(comm.transport().device());
  comm.run(*comm.all_gather_small(there));
  return there.to_vector();
}

/// Samples of rank r in a step: different ones, and in a world of more than two a rank may have none.
inline std::int64_t samples_of(int rank, int step) {
  constexpr std::int64_t kSamples[] = {9, 5, 0, 14, 7, 1, 12, 8};
  return kSamples[(rank + step) % 8];
}

/// Trains 50 steps; after each, ranks have the same bits. `norms`: with batch norms over all ranks.
template <class Sync>
void check_training_equals_one_rank(dist::Transport& transport, bool norms,
                                    dist::Overlap overlap = dist::Overlap::thread,
                                    const dist::CommunicatorOptions& options = {}, int steps = 50) {
  const int world = transport.world_size(), rank = transport.rank();
  const ArenaOptions place{.device = transport.device()};
  dist::Communicator comm(transport, options);
  constexpr dist::BucketOptions kBuckets{.bucket_bytes = 700, .first_bucket_bytes = 100};
  const bool sharded = std::is_same_v<Sync, dist::Zero1>;
  DigitsModel one(norms, dist::bucketed(place, 1, kBuckets)),
      many(norms, sharded ? dist::sharded(place, comm, kBuckets) : dist::bucketed(place, world, kBuckets));
  std::optional<dist::SyncBatchNorm> joined;
  if (norms) joined.emplace(many.net, comm);
  Sync sync(many.arena, comm, {.overlap = overlap});
  GradientMeter meter(one.arena);
  std::int64_t at = 0;
  double first_loss = 0, last_loss = 0;
  for (int step = 0; step < steps; ++step) {
    std::int64_t first = at;
    for (int r = 0; r < rank; ++r) first += samples_of(r, step);
    std::int64_t all = 0;
    for (int r = 0; r < world; ++r) all += samples_of(r, step);
    if (all < 2) continue;
    const double expected = one.pass(digits_batch(at, all), all);
    meter.measure(one.step);
    one.update();
    const double share = many.pass(digits_batch(first, samples_of(rank, step)), all);
    sync.reduce(many.step);
    many.update();
    if constexpr (std::is_same_v<Sync, dist::Zero1>) sync.gather_weights();
    at += all;

    double loss = 0;
    for (const double part : from_all(comm, share)) loss += part;
    EXPECT_NEAR(loss, expected, 1e-3) << "step " << step;
    if (step == 0) {
      first_loss = expected;
      EXPECT_LT(relative_distance(many.weights(), one.weights()), 1e-6);
      if (norms) {
        EXPECT_LT(relative_distance(many.statistics(), one.statistics()), 1e-6);
      }
    }
    last_loss = expected;
    // Every rank's weights and statistics, as one number of 52 bits.
    std::uint64_t hash = 0;
    for (const auto& values : {many.weights(), many.statistics()}) {
      for (const double value : values) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof(bits));
        hash = kernels::mix64(hash ^ bits);
      }
    }
    const std::vector<double> hashes = from_all(comm, static_cast<double>(hash >> 12));
    EXPECT_EQ(hashes, std::vector<double>(static_cast<std::size_t>(world), hashes[0])) << "step " << step;
  }
  if (steps < 50) return;
  EXPECT_LT(last_loss, 0.7 * first_loss);  // there was something to learn
  if (norms) {
    EXPECT_LT(relative_distance(many.statistics(), one.statistics()), 1e-3);
  }
}

}  // namespace athanor::test
