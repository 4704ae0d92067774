// The parts of a training, each without a Trainer.
#include <cmath>
#include <csignal>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "kernels/copy.h"
#include "kernels/cpu/context.h"
#include "tests/support/errors.h"
#include "tests/support/small_training.h"
#include "trainer/classifier.h"
#include "trainer/data_pipeline.h"
#include "trainer/limits.h"
#include "trainer/validation.h"

namespace athanor::run_parts_test {

using test::kSmallSpec;
using test::Perceptron;
using test::small_config;

/// What several parts need of each other.
struct Parts {
  explicit Parts(TrainerConfig of) : config(std::move(of)) {}
  TrainerConfig config;
  std::unique_ptr<ParallelStrategy> strategy = ParallelStrategy::make(nullptr, config);
  RunClock clock;
  Limits limits{config, *strategy, clock};
  Times total;
  PhaseTimes times{total};
};

// Limits ---------------------------------------------------------------------------------------------------

TEST(Limits, MaxTimeDoesNotCountTuning) {
  TrainerConfig config = small_config();
  config.max_time_s = 10;
  VendorStats vendor;
  RunClock clock(vendor);
  const auto strategy = ParallelStrategy::make(nullptr, config);
  Limits limits(config, *strategy, clock);
  clock.add(15);
  vendor.tuning_s += 7;
  limits.after_step(1);
  EXPECT_FALSE(limits.stopped());
  clock.add(3);
  limits.after_step(2);
  EXPECT_TRUE(limits.stopped());
  EXPECT_EQ(limits.ended().reason, StoppedBy::max_time);
}

TEST(Limits, TheFirstReasonCounts) {
  Parts parts(small_config());
  parts.limits.after_step(7);
  EXPECT_FALSE(parts.limits.stopped());
  parts.limits.stop({StoppedBy::early_stop, "enough"});
  EXPECT_FALSE(parts.limits.stopped()) << "before ranks have agreed, and the step is over";
  parts.limits.stop({StoppedBy::max_time, "late"});
  parts.limits.after_step(8);
  EXPECT_TRUE(parts.limits.stopped());
  EXPECT_EQ(parts.limits.ended().reason, StoppedBy::early_stop);
  EXPECT_EQ(parts.limits.ended().why, "enough");
}

TEST(Limits, StepsTimeAndSignalsEndIt) {
  TrainerConfig config = small_config();
  config.max_steps = 3;
  config.max_time_s = 100;
  Parts by_steps(config), by_time(config), by_signal(config);
  for (const std::int64_t step : {1, 2, 3}) {
    EXPECT_FALSE(by_steps.limits.stopped());
    by_steps.limits.after_step(step);
  }
  EXPECT_EQ(by_steps.limits.ended().reason, StoppedBy::max_steps);
  by_time.clock.add(101);
  by_time.limits.agree();
  EXPECT_FALSE(by_time.limits.stopped()) << "within a validation, time is not looked at";
  by_time.limits.agree(true);
  EXPECT_EQ(by_time.limits.ended().reason, StoppedBy::max_time);
  EXPECT_TRUE(test::names(by_time.limits.ended().why, {"--max-time", "1 min 41 s"}));
  std::raise(SIGINT);
  by_signal.limits.after_step(1);
  EXPECT_EQ(by_signal.limits.ended().reason, StoppedBy::signal);
  EXPECT_EQ(by_signal.limits.signal(), SIGINT);
}

TEST(Limits, TheVoteOfOtherRanksIsTaken) {
  Parts parts(small_config());
  EXPECT_FALSE(parts.limits.take({}));
  EXPECT_TRUE(parts.limits.take({.reason = static_cast<int>(StoppedBy::early_stop), .rank = 2}));
  EXPECT_EQ(parts.limits.ended().reason, StoppedBy::early_stop);
  EXPECT_TRUE(test::names(parts.limits.ended().why, {"rank 2"}));
}

// Repeated augmentation
// --------------------------------------------------------------------------------------

TEST(RepeatedAugmentation, GivesEachImageSeveralTimesInARowAndShortensTheEpoch) {
  TrainerConfig config = small_config();
  config.batch_size = 6;
  config.repeated_aug = 3;
  config.workers = 2;
  Parts parts(config);
  const auto data = synthetic(kSmallSpec, 40, 1);
  DataPipeline pipeline(parts.config, *parts.strategy, *data, nullptr, {});
  EXPECT_EQ(pipeline.steps_per_epoch(), 6) << "as without: 40 / 6";
  std::set<std::int64_t> before;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    pipeline.start_epoch(epoch, 0);
    std::set<std::int64_t> images;
    std::int64_t delivered = 0;
    for (std::int64_t now = 0; (now = pipeline.samples_of_step(delivered)) > 0; delivered += now) {
      Batch batch;
      pipeline.next(batch, parts.times);
      const std::vector<double> samples = batch.samples.to_vector();
      for (std::size_t i = 0; i < 6; i += 3) {
        std::set<std::int64_t> copies;
        for (std::size_t k = i; k < i + 3; ++k) {
          copies.insert(static_cast<std::int64_t>(samples[k]) % 3);
          EXPECT_EQ(static_cast<std::int64_t>(samples[k]) / 3, static_cast<std::int64_t>(samples[i]) / 3);
        }
        EXPECT_EQ(copies.size(), 3u);
        EXPECT_TRUE(images.insert(static_cast<std::int64_t>(samples[i]) / 3).second);
      }
    }
    EXPECT_EQ(delivered, 36);
    EXPECT_EQ(images.size(), 12u);
    EXPECT_NE(images, before) << "another third of the images";
    before = images;
  }
  config.order = Order::page_random;
  EXPECT_ERROR(ArgumentError, check(config), "--repeated-aug", "--order pages");
}

// Validation -----------------------------------------------------------------------------------------------

struct Validated : Parts {
  Validated() : Parts(small_config()) {}
  std::unique_ptr<InMemoryDataset> train = synthetic(kSmallSpec, 64, 1),
                                   held_out = synthetic(kSmallSpec, 50, 2);
  DataPipeline pipeline{config, *strategy, *train, held_out.get(), {}};
  Perceptron model;
  Classifier task{model, 5, 0.3};
  Validation validation{task, pipeline, *strategy, limits, config};
};

// Else a wrong count of steps would train the last batch again and again.
TEST(Batches, EndWithTheirEpoch) {
  Validated parts;
  parts.pipeline.start_epoch(0, 0);
  Batch batch;
  for (int i = 0; i < 4; ++i) parts.pipeline.next(batch, parts.times);
  EXPECT_ERROR(ArgumentError, parts.pipeline.next(batch, parts.times), "data", "64");
}

TEST(Validation, MeasuresAllThatIsHeldOut) {
  Validated parts;
  parts.model.train();
  const auto metrics = parts.validation.run(0, {}, parts.times);
  ASSERT_TRUE(metrics);
  EXPECT_EQ(metrics->samples, 50);
  EXPECT_NEAR(metrics->loss, std::log(5.0), 0.5) << "of weights that have learnt nothing, not smoothed";
  EXPECT_TRUE(parts.model.training());
  EXPECT_GT(parts.total.validation, 0);
  EXPECT_EQ(parts.validation.run(0, {}, parts.times)->loss, metrics->loss);
  EXPECT_EQ(parts.validation.run(0, {}, parts.times, nullptr, 0)->samples, 0);
}

TEST(Validation, ASignalEndsItWithoutAResult) {
  Validated parts;
  parts.model.on_validation = [](int, const Tensor&) { std::raise(SIGTERM); };
  EXPECT_FALSE(parts.validation.run(0, {}, parts.times));
  EXPECT_EQ(parts.limits.signal(), SIGTERM);
}

TEST(Validation, IsOfTheAverageWhereThereIsOne) {
  Validated parts;
  ParameterArena arena(parts.model.parameters(), parts.model.buffers());
  parts.strategy->attach(arena, parts.times);
  Ema average(arena);
  const double before = parts.validation.run(0, {}, parts.times)->loss;
  kernels::fill(cpu_context(), arena.parts()[0].masters, 0);
  EXPECT_NEAR(parts.validation.run(0, {}, parts.times)->loss, std::log(5.0), 1e-6);
  EXPECT_EQ(parts.validation.run(0, {&average}, parts.times)->loss, before);
  EXPECT_FALSE(average.swapped());
  EXPECT_EQ(arena.parts()[0].masters.data<float>()[0], 0);
}

}  // namespace athanor::run_parts_test
