// What is asked before a run trains, or between its steps: learning rate, batch size, number of threads,
// convolutions. Afterwards the run is what it would have been.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

#include "kernels/conv_choices.h"
#include "kernels/cpu/context.h"
#include "optim/load.h"
#include "tests/support/errors.h"
#include "tests/support/ranks_run.h"
#include "tests/support/small_training.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/classifier.h"
#include "trainer/finders/largest_fit.h"
#include "trainer/finders/lr_finder.h"

namespace athanor::finders_test {

using namespace test;

// What a curve says ----------------------------------------------------------------------------------------

/// A loss that falls around `middle`, over half a decade, and then rises without end.
LrCurve curve_of(double middle, double noise, double fall = 2, double rise_from = 10) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(0, noise);
  LrCurve curve;
  const LrRange range;
  for (int i = 0; i < range.steps; ++i) {
    const double rate = range.rate(i), away = (std::log10(rate) - std::log10(middle)) / 0.25;
    const double up = std::max(std::log10(rate / rise_from), 0.0);
    if (!curve.add(rate, 2.3 - fall / (1 + std::exp(-away)) + 20 * up * up + normal(random))) break;
  }
  return curve;
}

TEST(LrFinder, AnswersWithTheRateWhereTheLossFallsFastest) {
  for (const double middle : {1e-4, 3e-3, 0.2}) {
    for (const double noise : {0.0, 0.02, 0.1}) {
      const LrAnswer answer = answer_of(curve_of(middle, noise));
      ASSERT_TRUE(answer.rate) << answer.why;
      EXPECT_GT(*answer.rate, middle / 1.6) << noise;
      EXPECT_LT(*answer.rate, middle * 1.6) << noise;
    }
  }
}

TEST(LrFinder, SmoothsByAGaussianOfTwoAndAHalfSteps) {
  LrCurve curve;
  const LrRange range;
  for (int i = 0; i < range.steps; ++i) EXPECT_TRUE(curve.add(range.rate(i), i == 50 ? 0 : 1));
  const std::vector<double> smooth = answer_of(curve).smooth;
  for (const int away : {1, 2, 5}) {
    const double share = (1 - smooth[static_cast<std::size_t>(50 + away)]) / (1 - smooth[50]);
    EXPECT_NEAR(share, std::exp(-away * away / 12.5), 1e-12) << away;
  }
}

TEST(LrFinder, StopsWhereTheLossDiverges) {
  const LrCurve curve = curve_of(1e-3, 0.01, 2, 0.1);
  ASSERT_TRUE(curve.diverged_at);
  EXPECT_GT(*curve.diverged_at, 0.1);
  EXPECT_LT(*curve.diverged_at, 1.0);
  EXPECT_TRUE(names(answer_of(curve).why, {fmt::format("{:.2g}", *curve.diverged_at)}));
  LrCurve nan;
  for (int i = 0; i < 30; ++i) EXPECT_TRUE(nan.add(1e-3, 2));
  EXPECT_FALSE(nan.add(0.5, std::nan("")));
  EXPECT_EQ(nan.diverged_at, 0.5);
  EXPECT_EQ(nan.points.size(), 30u);
}

TEST(LrFinder, ReportsWhenNoRateIsBest) {
  const LrCurve curve = curve_of(1e-3, 0.05, 0.0);
  const LrAnswer flat = answer_of(curve);
  EXPECT_FALSE(flat.rate);
  EXPECT_TRUE(names(flat.why, {fmt::format("{:.2g}", curve.points.front().rate),
                               fmt::format("{:.2g}", curve.points.back().rate)}));
  LrCurve early;
  for (int i = 0; i < 4; ++i) early.add(1e-3, 2);
  EXPECT_FALSE(early.add(1e-2, std::nan("")));
  EXPECT_TRUE(names(answer_of(early).why, {"0.01", "4"}));
  EXPECT_FALSE(answer_of(LrCurve{}).rate);
}

TEST(LrFinder, DrawsWithinTheTerminal) {
  const LrCurve curve = curve_of(3e-3, 0.05);
  const LrAnswer answer = answer_of(curve);
  for (const int columns : {40, 80, 200}) {
    const std::string chart = chart_of(curve, answer, columns);
    std::size_t lines = 0;
    for (std::size_t at = 0, end; (end = chart.find('\n', at)) != std::string::npos; at = end + 1, ++lines) {
      int width = 0;
      for (std::size_t i = at; i < end; ++i) width += (static_cast<unsigned char>(chart[i]) & 0xc0) != 0x80;
      EXPECT_LE(width, columns);
    }
    EXPECT_EQ(lines, 13u);
    EXPECT_NE(chart.find("│"), std::string::npos);
    EXPECT_NE(chart.find("0.001"), std::string::npos) << chart;
  }
  EXPECT_NE(svg_of(curve, answer).find("<polyline"), std::string::npos);
  EXPECT_EQ(chart_of(LrCurve{}, answer_of(LrCurve{}), 80), "");
}

TEST(LrFinder, NamesTheCommandThatFollows) {
  TrainerConfig config;
  config.command = {"bin/train", "--lr",       "0.1",     "--lr-curve=c.svg",
                    "--find-lr", "--data-dir", "my data", "--lr=3"};
  EXPECT_EQ(command_with(config, "--lr", "0.02"), "bin/train --data-dir 'my data' --lr 0.02");
  EXPECT_EQ(command_with(TrainerConfig{}, "--lr", "0.02"), "--lr 0.02");
}

TEST(LrFinder, ChecksItsRange) {
  EXPECT_ERROR(ArgumentError, check(LrRange{1, 0.1, 100}), "find_lr", "1", "0.1");
  EXPECT_ERROR(ArgumentError, check(LrRange{1e-7, 10, 3}), "find_lr", "20", "100,000", "3");
  EXPECT_NEAR(LrRange{}.rate(0), 1e-7, 1e-12);
  EXPECT_NEAR(LrRange{}.rate(99), 10, 1e-6);
}

// A run that is asked --------------------------------------------------------------------------------------

/// Asks for the learning rate at the beginning, after some steps, and after each epoch.
class Asking final : public Callback {
 public:
  explicit Asking(std::vector<LrCurve>& curves) : curves_(curves) {}
  void on_fit_begin(Trainer& trainer, const FitInfo&) override { ask(trainer); }
  void on_step_end(Trainer& trainer, const StepInfo& step) override {
    if (step.attempted % 4 == 3) ask(trainer);
  }
  void on_epoch_end(Trainer& trainer, const EpochReport&) override { ask(trainer); }

 private:
  void ask(Trainer& trainer) { curves_.push_back(trainer.find_lr({1e-3, 1, 30})); }
  std::vector<LrCurve>& curves_;
};

void expect_untouched(const TrainerConfig& config) {
  std::vector<LrCurve> curves;
  std::vector<std::unique_ptr<Callback>> asking;
  asking.push_back(std::make_unique<Asking>(curves));
  ResumeNet model;
  const RecordedRun asked = train(config, model, {}, std::move(asking));
  const RecordedRun straight = train(config);
  ASSERT_EQ(asked.epochs.size(), straight.epochs.size());
  expect_same_end(asked, straight);
  EXPECT_EQ(asked.results.size(), straight.results.size());
  EXPECT_EQ(asked.report.host_syncs, straight.report.host_syncs);
  ASSERT_EQ(curves.size(), 5u);
  for (const LrCurve& curve : curves) {
    EXPECT_GT(curve.points.size(), 20u);
    EXPECT_NE(curve.points[0].loss, curve.points[5].loss);
  }
}

TEST(Finders, LeaveARunUnchanged) {
  expect_untouched(resume_config());
}

TEST(Finders, LeaveARunInHalfPrecisionWithAveragesUnchanged) {
  TrainerConfig config = resume_config();
  config.precision = Precision::bf16;
  config.ema_decay = 0.9;
  config.optimizer_kind = OptimizerKind::adamw;
  config.lr = 0.01;
  expect_untouched(config);
}

TEST(Finders, FollowTheOptimizerAndTheLossScale) {
  TrainerConfig config = resume_config();
  config.precision = Precision::f16;
  config.loss_scaling = LossScaling{.initial = 1048576, .growth_interval = 3};
  std::vector<LrCurve> curves;
  std::vector<std::unique_ptr<Callback>> asking;
  asking.push_back(std::make_unique<Asking>(curves));
  ResumeNet model;
  expect_same_end(train(config, model, {}, std::move(asking)), train(config));
  EXPECT_LT(curves[0].points.size(), 30u);  // steps that overflowed measured nothing
  EXPECT_GT(curves[0].points.size(), 20u);
}

TEST(Finders, RanksGetTheSameAnswer) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
    TrainerConfig config = with(ranks_config(), strategy);
    config.max_steps = 12;
    std::vector<LrCurve> curves(2);
    std::vector<RecordedRun> asked(2);
    dist::run_ranks(2, [&](dist::Transport& transport) {
      const auto rank = static_cast<std::size_t>(transport.rank());
      PlainNet net;
      Trainer trainer(config, &transport);
      const auto ask = [&](Trainer& of, const StepInfo& step) {
        if (step.attempted == 5) curves[rank] = of.find_lr({1e-4, 1, 30});
      };
      trainer.add(on_step(ask, false));  // with ZeRO-1, while weights travel between ranks
      asked[rank] = record(trainer, net, *digits(Split::train), *digits(Split::test), {}, true);
    });
    expect_alike(asked);
    EXPECT_EQ(asked[0].report.weights_hash, train_ranks(2, config)[0].report.weights_hash);
    LrCurve alone;
    train_ranks(1, with(config, Strategy::automatic), [&](Trainer& trainer, const StepInfo& step) {
      if (step.attempted == 5) alone = trainer.find_lr({1e-4, 1, 30});
    });
    ASSERT_EQ(curves[0].points.size(), curves[1].points.size());
    ASSERT_EQ(curves[0].points.size(), alone.points.size());
    for (std::size_t i = 0; i < alone.points.size(); ++i) {
      EXPECT_EQ(curves[0].points[i].loss, curves[1].points[i].loss);
      EXPECT_NEAR(curves[0].points[i].loss, alone.points[i].loss, 2e-3 * alone.points[i].loss) << i;
    }
  }
}

// The number of threads ------------------------------------------------------------------------------------

class Threads : public ResumeTest {};

TEST_F(Threads, AreMeasuredAndLeaveNoTrace) {
  if (cpu_context().threads() == 1)
    GTEST_SKIP() << "kernels have one thread here: there is nothing to measure";
  TrainerConfig config = resume_config();
  config.deterministic = false;
  config.threads = TrainerConfig::kMeasuredThreads;
  const RecordedRun measured = train(saving(config, 4));
  ASSERT_TRUE(has_note(measured, {"--threads auto", "ms"})) << measured.notes.size();
  const auto chosen = load_checkpoint(file(4)).integer("run.threads");
  config.threads = static_cast<int>(chosen);
  expect_same_end(measured, train(config));
  // Who resumes it measures nothing, and takes what was chosen: here another number.
  config.threads = TrainerConfig::kMeasuredThreads;
  const RecordedRun resumed = train(from(config, file(4).string()));
  expect_same_end(resumed, measured);
  EXPECT_TRUE(has_note(resumed, {"--threads auto", fmt::to_string(chosen)}));
  EXPECT_FALSE(has_note(resumed, {"--threads auto", "ms"}));
}

TEST_F(Threads, AreAllIfNothingMayBeMeasured) {
  TrainerConfig config = resume_config();
  config.threads = TrainerConfig::kMeasuredThreads;
  const RecordedRun run = train(config);
  EXPECT_TRUE(has_note(run, {"--threads auto", fmt::to_string(cpu_context().threads())}));
  EXPECT_FALSE(has_note(run, {"--threads auto", "ms"}));
}

// The implementations of convolutions -----------------------------------------------------------------------

class BenchmarkFlag : public ResumeTest {
 protected:
  void TearDown() override {
    set_conv_choices("");
    ResumeTest::TearDown();
  }
};

TEST_F(BenchmarkFlag, MeasuresLeavesNoTraceAndIsKept) {
  TrainerConfig config = resume_config();
  config.deterministic = false;
  config.benchmark = true;
  const RecordedRun measured = train(saving(config, 4));
  const std::string chosen = load_checkpoint(file(4)).text("run.conv_choices");
  const auto count = std::count(chosen.begin(), chosen.end(), '\n');
  ASSERT_TRUE(has_note(measured, {"--benchmark", fmt::to_string(count)})) << measured.notes.size();
  EXPECT_EQ(chosen, conv_choices());
  EXPECT_NE(chosen, "");
  config.benchmark = false;
  expect_same_end(measured, train(config));  // with the same choices, which are the process's
  set_conv_choices("");
  const RecordedRun resumed = train(from(config, file(4).string()));
  expect_same_end(resumed, measured);
  EXPECT_EQ(conv_choices(), chosen);
  EXPECT_TRUE(has_note(resumed, {"--benchmark"}));
  EXPECT_FALSE(has_note(resumed, {"--benchmark", fmt::to_string(count)})) << "nothing is measured";
}

TEST_F(BenchmarkFlag, StoresTheChoicesOfTheProgramToo) {
  TrainerConfig config = resume_config();
  config.deterministic = false;
  config.benchmark = true;
  train(config);
  const std::string chosen = conv_choices();
  config.benchmark = false;
  const RecordedRun next = train(saving(config, 4));
  EXPECT_EQ(load_checkpoint(file(4)).text("run.conv_choices"), chosen);
  set_conv_choices("");
  expect_same_end(train(from(config, file(4).string())), next);
  EXPECT_EQ(conv_choices(), chosen);
}

TEST_F(BenchmarkFlag, MeasuresNothingInARunBegunWithoutIt) {
  TrainerConfig config = resume_config();
  config.deterministic = false;
  const RecordedRun plain = train(saving(config, 4));
  config.benchmark = true;
  const RecordedRun resumed = train(from(config, file(4).string()));
  expect_same_end(resumed, plain);
  EXPECT_TRUE(has_note(resumed, {"--benchmark"}));
  EXPECT_EQ(conv_choices(), "");
}

TEST_F(BenchmarkFlag, MeasuresNothingWithDeterministic) {
  TrainerConfig config = resume_config();
  config.benchmark = config.deterministic = true;
  const RecordedRun run = train(config);
  EXPECT_TRUE(has_note(run, {"--benchmark", "--deterministic"}));
  EXPECT_EQ(conv_choices(), "");
}

// The batch size -------------------------------------------------------------------------------------------

TEST(LargestFit, IsWithinASixteenth) {
  for (const std::int64_t room : {1, 7, 100, 1000, 4095}) {
    const std::int64_t found = largest_that_fits(0, 4096, [&](std::int64_t n) { return n <= room; });
    EXPECT_LE(found, room);
    EXPECT_GE(found + std::max<std::int64_t>(found / 16, 0), room) << found;
  }
  EXPECT_EQ(largest_that_fits(0, 4096, [](std::int64_t) { return false; }), 0);
}

/// Keeps the text of the answer.
class Listening final : public Callback {
 public:
  explicit Listening(std::string& text) : text_(text) {}
  void on_answer(Trainer&, const AnswerText& text) override { text_ = text(80); }

 private:
  std::string& text_;
};

std::string asked_for_batch(TrainerConfig config, std::int64_t samples) {
  config.question = Question::batch_size;
  Perceptron model;
  model.eval();
  const auto before = weights_of(model);
  std::string text;
  Trainer trainer(config);
  trainer.add(std::make_unique<Listening>(text));
  const auto train = synthetic(kSmallSpec, samples, 1), held_out = synthetic(kSmallSpec, 20, 2);
  EXPECT_EQ(trainer.fit(model, *train, *held_out).steps.applied, 0);
  EXPECT_EQ(weights_of(model), before);
  EXPECT_FALSE(model.training());
  // And the model trains as ever.
  config.question = Question::none;
  Trainer after(config);
  EXPECT_EQ(record(after, model, *train, *held_out).report.weights_hash,
            run(config, samples).report.weights_hash);
  return text;
}

// Gradients go to the arena of the run, not to that of the run before.
TEST(BatchSize, LeavesAModelThatTrainsAgain) {
  const auto train = synthetic(kSmallSpec, 160, 1), held_out = synthetic(kSmallSpec, 50, 2);
  Perceptron model;
  const StateDict weights = clone_tensors(model.state_dict());
  for (const bool again : {false, true}) {
    if (again) model.load_state_dict(weights);
    Trainer trainer(small_config());
    EXPECT_EQ(record(trainer, model, *train, *held_out).report.weights_hash,
              run(small_config()).report.weights_hash);
  }
}

TEST(BatchSize, GoesUpToAllImages) {
  const std::string text = asked_for_batch(small_config(), 300);
  EXPECT_TRUE(has_line(text, {"largest that fits", "300"}));
  EXPECT_NE(text.find("next                --batch-size "), std::string::npos) << text;
  for (const char* const size : {"\n        8 ", "\n       64 ", "\n      256 ", "\n      300 "})
    EXPECT_NE(text.find(size), std::string::npos) << size << text;
}

TEST(BatchSize, IsBoundByMemory) {
  TrainerConfig config = small_config();
  config.batch_size = 8;
  config.workers = 0;
  config.memory_limit = std::int64_t{32} << 20;
  const std::string text = asked_for_batch(config, 150'000);
  const std::size_t at = text.find("largest that fits   ");
  ASSERT_NE(at, std::string::npos) << text;
  std::string digits = text.substr(at + 20, text.find('\n', at) - at - 20);
  std::erase(digits, ',');
  const std::int64_t largest = std::stoll(digits);
  EXPECT_LT(largest, 150'000);
  const auto fits = [&](std::int64_t batch) {
    TrainerConfig of = config;
    of.batch_size = batch;
    of.max_steps = 2;
    Perceptron model;
    Trainer trainer(of);
    try {
      Classifier task(model, 5);
      trainer.fit(task, *synthetic(kSmallSpec, 150'000, 1));
      return true;
    } catch (const OutOfMemoryError&) {
      return false;
    }
  };
  // The allocator's blocks are large beside so little memory, and what is left of them differs.
  EXPECT_TRUE(fits(largest / 2)) << text;
  EXPECT_FALSE(fits(std::min<std::int64_t>(2 * largest, 150'000))) << text;
}

TEST(BatchSize, OfValidationMayBeTooLarge) {
  TrainerConfig config = small_config();
  config.batch_size = 8;
  config.workers = 0;
  config.max_steps = 2;
  config.memory_limit = std::int64_t{32} << 20;
  config.val_batch_size = 150'000;
  Perceptron model;
  Classifier task(model, 5);
  const auto train = synthetic(kSmallSpec, 64, 1), held_out = synthetic(kSmallSpec, 150'000, 2);
  EXPECT_ERROR(OutOfMemoryError, Trainer(config).fit(task, *train, *held_out), "--val-batch-size", "75000");
}

TEST(BatchSize, RejectsSeveralRanks) {
  TrainerConfig config = ranks_config();
  config.question = Question::batch_size;
  dist::run_ranks(2, [&](dist::Transport& transport) {
    PlainNet net;
    Trainer trainer(config, &transport);
    EXPECT_ERROR(ArgumentError, trainer.fit(net, *digits(Split::train), *digits(Split::test)),
                 "--find-batch-size", "2", "--devices");
  });
}

}  // namespace athanor::finders_test
