// --freeze: parts of a network that do not train, for a whole run or for its first epochs.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dist/transports/thread_transport.h"
#include "tests/support/errors.h"
#include "tests/support/frozen_cases.h"
#include "trainer/classifier.h"

namespace athanor::freezing_test {

using test::kSmallSpec;
using test::Net;
using test::small_config;
using test::values_of;

TrainerConfig config_of(std::vector<Freeze> freeze, Precision precision = Precision::f32) {
  TrainerConfig config = small_config();
  config.epochs = 4;
  config.precision = precision;
  config.freeze = std::move(freeze);
  return config;
}

test::RecordedRun train(Net& net, const TrainerConfig& config, dist::Transport* transport = nullptr,
                        std::unique_ptr<Callback> callback = nullptr) {
  Classifier task(net, 5);
  return test::train(task, config, transport, std::move(callback));
}

/// The values of the body, parameters and statistics, at the beginning and after each epoch.
std::vector<std::vector<double>> body_after_epochs(const TrainerConfig& config) {
  Net net(1);
  std::vector<std::vector<double>> all = {values_of(net.body)};
  Trainer trainer(config);
  trainer.add(test::on_epoch([&](Trainer&, const EpochReport&) { all.push_back(values_of(net.body)); }));
  (void)trainer.fit(net, *synthetic(kSmallSpec, 160, 1), *synthetic(kSmallSpec, 50, 2));
  return all;
}

TEST(Freezing, AFrozenPartKeepsItsBitsForTheWholeRun) {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    Net net(1);
    const std::vector<double> body = values_of(net.body), head = values_of(net.head);
    Trainer trainer(config_of({{"body"}}, precision));
    (void)trainer.fit(net, *synthetic(kSmallSpec, 160, 1), *synthetic(kSmallSpec, 50, 2));
    EXPECT_NE(values_of(net.head), head);
    EXPECT_EQ(trainer.arena().numel(), 24 + 65);
    if (precision == Precision::f32) {
      EXPECT_EQ(values_of(net.body), body);
    }
  }
}

TEST(Freezing, APartTrainsAfterItsEpochs) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const auto epochs = body_after_epochs(config_of({{"body", 2}}, precision));
    ASSERT_EQ(epochs.size(), 5u);
    EXPECT_EQ(epochs[2], epochs[1]);
    if (precision == Precision::f32) {
      EXPECT_EQ(epochs[1], epochs[0]);
    }
    EXPECT_NE(epochs[3], epochs[2]);
    EXPECT_NE(epochs[4], epochs[3]);
  }
  const auto all = body_after_epochs(config_of({}));
  EXPECT_NE(all[1], all[0]) << "this test would not see it move";
}

TEST(Freezing, PartsOfAPartMayStayLonger) {
  const auto epochs = body_after_epochs(config_of({{"body", 1}, {"body.norm", 3}}));
  const auto weights = [&](std::size_t epoch) {  // of body.linear: 16 * 12 and 12
    return std::vector<double>(epochs[epoch].begin(), epochs[epoch].begin() + 204);
  };
  const auto norm = [&](std::size_t epoch) {
    return std::vector<double>(epochs[epoch].begin() + 204, epochs[epoch].end());
  };
  EXPECT_EQ(weights(1), weights(0));
  EXPECT_NE(weights(2), weights(1));
  EXPECT_EQ(norm(3), norm(0));
  EXPECT_NE(norm(4), norm(3));
  EXPECT_EQ(body_after_epochs(config_of({{"body", 1}, {"body.linear"}}))[4][0], epochs[0][0]);
}

TEST(Freezing, NormsKeepTheirStatisticsAndOnRequestTheirScales) {
  const auto after = [](FreezeNorms what, std::vector<Freeze> freeze = {}) {
    TrainerConfig config = config_of(std::move(freeze));
    config.freeze_norms = what;
    auto net = std::make_unique<Net>(1);
    (void)train(*net, config);
    return net;
  };
  const Net fresh(1);
  const auto free = after(FreezeNorms::none), statistics = after(FreezeNorms::statistics),
             all = after(FreezeNorms::all);
  const auto buffers = [](const nn::Module& module) {
    std::vector<std::vector<double>> values;
    for (const NamedTensor& one : module.buffers()) values.push_back(one.tensor.to_vector());
    return values;
  };
  EXPECT_NE(buffers(*free), buffers(fresh)) << "this test would not see them move";
  for (const auto& kept : {&*statistics, &*all}) {
    EXPECT_EQ(buffers(*kept), buffers(fresh));
    EXPECT_NE(values_of(kept->head), values_of(fresh.head));
  }
  EXPECT_NE(values_of(statistics->norm), values_of(fresh.norm)) << "scales and shifts train";
  EXPECT_EQ(values_of(all->norm), values_of(fresh.norm));
  EXPECT_EQ(values_of(all->body.norm), values_of(fresh.body.norm));
  EXPECT_NE(values_of(all->body.linear), values_of(fresh.body.linear));
  const auto released = after(FreezeNorms::all, {{"body", 2}});
  EXPECT_EQ(values_of(released->body.norm), values_of(fresh.body.norm)) << "those of a released part stay";
  EXPECT_NE(values_of(released->body.linear), values_of(fresh.body.linear));
}

TEST(Freezing, WithoutNormsThereIsNothingToKeep) {
  TrainerConfig config = small_config();
  config.freeze_norms = FreezeNorms::statistics;
  EXPECT_ERROR(ArgumentError, test::run(config), "--freeze-bn");
}

TEST(Freezing, AResumedRunReleasesItAtTheSameStep) {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    TrainerConfig config = config_of({{"body", 2}, {"norm"}}, precision);
    config.ema_decay = 0.9;
    Net whole(1);
    const test::RecordedRun expected = train(whole, config);
    const auto last = static_cast<std::int64_t>(expected.steps.size());
    for (const std::int64_t stop : {std::int64_t{1}, last / 2 - 1, last / 2, last / 2 + 1, last - 1}) {
      const test::TempDir folder;
      config.checkpoint_dir = folder / "saved";
      config.resume = {};
      Net before(1);
      (void)train(before, config, nullptr, std::make_unique<test::StopAfter>(stop));
      config.resume = "auto";
      Net after(1);
      const test::RecordedRun resumed = train(after, config);
      EXPECT_EQ(resumed.report.weights_hash, expected.report.weights_hash) << stop;
      EXPECT_EQ(values_of(after), values_of(whole)) << stop;
    }
    config.checkpoint_dir.clear();
    config.resume.clear();
  }
}

TEST(Freezing, RanksReleaseItTogether) {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    TrainerConfig config = config_of({{"body", 2}}, precision);
    config.threads = 1;
    std::vector<std::vector<double>> values;
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
      config.strategy = strategy;
      std::vector<test::RecordedRun> runs(2);
      dist::run_ranks(2, [&](dist::Transport& transport) {
        Net net(1);
        runs[static_cast<std::size_t>(transport.rank())] = train(net, config, &transport);
      });
      EXPECT_EQ(runs[0].weights, runs[1].weights);
      EXPECT_TRUE(runs[0].notes.empty() || !test::holds(runs[0].notes.back(), "gradient"))
          << runs[0].notes.back();
      values.push_back(runs[0].weights);
    }
    EXPECT_EQ(values[0], values[1]);
  }
}

TEST(Freezing, AFollowingRunMayTrainAll) {
  Net net(1);
  const auto train_set = synthetic(kSmallSpec, 160, 1), test_set = synthetic(kSmallSpec, 50, 2);
  Trainer trainer(config_of({{"body", 9}}));  // not released in this run
  const std::vector<double> body = values_of(net.body);
  (void)trainer.fit(net, *train_set, *test_set);
  EXPECT_EQ(values_of(net.body), body);
  Trainer next(config_of({{"body", 1}}));
  (void)next.fit(net, *train_set, *test_set);
  EXPECT_NE(values_of(net.body), body);
}

TEST(Freezing, ResumingNeedsTheSameFreezing) {
  const test::TempDir folder;
  TrainerConfig config = config_of({{"body", 2}});
  config.checkpoint_dir = folder / "saved";
  Net net(1);
  (void)train(net, config, nullptr, std::make_unique<test::StopAfter>(3));
  config.resume = "auto";
  config.freeze = {};
  Net other(1);
  EXPECT_ERROR(ArgumentError, train(other, config), "--resume", "--freeze", "body:2");
}

TEST(Freezing, UnknownNamesListTheKnownOnes) {
  Net net(1);
  EXPECT_ERROR(ArgumentError, train(net, config_of({{"boddy"}})), "--freeze", "body", "norm", "head",
               "'boddy'", "'body'");
  Net again(1);
  EXPECT_ERROR(ArgumentError, train(again, config_of({{"body.linear.weight", 2}})), "--freeze",
               "'body.linear.weight'");
}

TEST(Freezing, SomethingMustBeLeft) {
  Net net(1);
  EXPECT_ERROR(ArgumentError, train(net, config_of({{"body", 2}, {"norm", 2}, {"head", 1}})), "--freeze",
               "epoch 1");
  Net again(1);
  EXPECT_ERROR(ArgumentError, train(again, config_of({{"body"}, {"norm"}, {"head"}})), "task", "optimizer");
}

}  // namespace athanor::freezing_test
