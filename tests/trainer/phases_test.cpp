// Trainings in phases: folders, settings, a run that is killed, ranks.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dist/transports/thread_transport.h"
#include "tests/support/errors.h"
#include "tests/support/files_in.h"
#include "tests/support/small_tasks.h"
#include "tests/support/temp_dir.h"
#include "tests/support/written.h"

namespace athanor::phases_test {

using test::adam_config;
using test::Autoencoder;
using test::files_in;
using test::kSmallSpec;

struct Student : Task {
  Autoencoder student;
  explicit Student(nn::Module& teacher) : taught_by(teacher) {
    network("encoder", student.encoder);
    network("decoder", student.decoder);
    frozen("teacher", teacher);
  }
  Tensor error(const Batch& batch) {
    const Tensor x = flatten(batch["image"]);
    return mse_loss(student.encoder(x), taught_by(x));
  }
  Tensor training_step(const Batch& batch, Step&) override { return error(batch); }
  void validation_step(const Batch& batch, Step& step) override { step.log("loss", error(batch)); }
  nn::Module& taught_by;
};

struct TwoPhases {
  FitReport first, second;
  test::RecordedRun run;
  std::vector<double> weights;

  explicit TwoPhases(const TrainerConfig& config, dist::Transport* transport = nullptr,
                     std::unique_ptr<Callback> callback = nullptr) {
    Trainer trainer(config, transport);
    trainer.add(std::make_unique<test::Recorder>(run));
    if (callback) trainer.add(std::move(callback));
    const auto train_set = synthetic(kSmallSpec, 160, 1), test_set = synthetic(kSmallSpec, 50, 2);
    Autoencoder teacher;
    first = trainer.phase("teacher", [](TrainerConfig& own) { own.epochs = 2; })
                .fit(teacher, *train_set, *test_set);
    Student student(teacher.encoder);
    student.student.networks().initialize(9);
    second = trainer.phase("student").fit(student, *train_set, *test_set);
    weights = test::weights_of(student.networks());
  }
};

/// Ends a phase after a step.
std::unique_ptr<Callback> ends_phase(const std::string& phase, std::int64_t after, StoppedBy why) {
  return test::on_step([=](Trainer& trainer, const StepInfo& step) {
    if (trainer.config().phase != phase || step.attempted != after) return;
    if (why == StoppedBy::signal)
      (void)std::raise(SIGINT);
    else
      trainer.stop(why, "enough");
  });
}

TEST(Phases, EachHasItsFolderAndItsSettings) {
  const test::TempDir folder;
  TrainerConfig config = adam_config();
  config.run_dir = folder / "run";
  const TwoPhases both(config);
  EXPECT_EQ(both.first.epochs, 2);
  EXPECT_EQ(both.second.epochs, 4);
  EXPECT_EQ(
      files_in(config.run_dir),
      (std::vector<std::string>{
          "checkpoints/student/step-00000020.safetensors", "checkpoints/student/step-00000030.safetensors",
          "checkpoints/student/step-00000040.safetensors", "checkpoints/teacher/step-00000010.safetensors",
          "checkpoints/teacher/step-00000020.safetensors", "metrics.jsonl", "student/model.safetensors",
          "student/report.html", "teacher/model.safetensors", "teacher/report.html"}));
  std::vector<std::string> phases;
  for (const auto& line : test::json_lines(config.run_dir / "metrics.jsonl"))
    phases.push_back(line.at("phase"));
  EXPECT_EQ(phases, (std::vector<std::string>{"teacher", "teacher", "teacher", "student", "student",
                                              "student", "student", "student"}));
}

TEST(Phases, AKilledRunResumesInItsPhase) {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    TrainerConfig config = adam_config();
    config.precision = precision;
    config.early_stop = EarlyStop{"val_loss", 3};  // whose memory is of one phase
    const TwoPhases expected(config);
    for (const char* const killed : {"teacher", "student"}) {
      const test::TempDir folder;
      config.checkpoint_dir = folder / "saved";
      config.checkpoint_every = 4;
      const TwoPhases before(config, nullptr, ends_phase(killed, 14, StoppedBy::signal));
      EXPECT_EQ(before.second.signal, SIGINT) << "nothing is trained behind a signal";
      config.resume = "auto";
      const TwoPhases after(config);
      EXPECT_EQ(after.first.weights_hash, expected.first.weights_hash) << killed;
      EXPECT_EQ(after.first.test_loss, expected.first.test_loss);
      EXPECT_EQ(after.second.weights_hash, expected.second.weights_hash) << killed;
      EXPECT_EQ(after.weights, expected.weights) << killed;
      const std::size_t steps = std::string(killed) == "teacher" ? 6 + 40 : 26;
      EXPECT_EQ(after.run.steps.size(), steps) << "a phase that is finished makes none";
      const TwoPhases done(config);
      EXPECT_TRUE(done.run.steps.empty());
      EXPECT_EQ(done.second.weights_hash, expected.second.weights_hash);
      EXPECT_EQ(done.second.test_loss, expected.second.test_loss);
      config.resume.clear();
      config.checkpoint_dir.clear();
      config.checkpoint_every = 0;
    }
  }
}

TEST(Phases, EarlyStoppingRestartsInEach) {
  struct Falling : Autoencoder {
    double score;
    explicit Falling(double from) : score(from) {}
    void validation_step(const Batch&, Step& step) override {
      step.log("score", full({}, --score, {DType::f32, kCpu}));
    }
  };
  TrainerConfig config = adam_config();
  config.early_stop = EarlyStop{"val_score", 2, Goal::minimum};
  Trainer trainer(config);
  const auto train_set = synthetic(kSmallSpec, 160, 1), test_set = synthetic(kSmallSpec, 50, 2);
  Falling first(0), second(100);  // which is never as low as the first
  (void)trainer.phase("first").fit(first, *train_set, *test_set);
  const FitReport report = trainer.phase("second").fit(second, *train_set, *test_set);
  EXPECT_EQ(report.epochs, 4);
  EXPECT_EQ(report.stopped_by, StoppedBy::epochs);
}

TEST(Phases, AreTheSameOnRanks) {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    TrainerConfig config = adam_config();
    config.precision = precision;
    config.threads = 1;
    std::vector<std::uint64_t> hashes;
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
      config.strategy = strategy;
      std::vector<FitReport> reports(2);
      dist::run_ranks(2, [&](dist::Transport& transport) {
        reports[static_cast<std::size_t>(transport.rank())] = TwoPhases(config, &transport).second;
      });
      for (const FitReport& report : reports) hashes.push_back(report.weights_hash);
    }
    EXPECT_EQ(hashes, std::vector<std::uint64_t>(4, hashes[0])) << name_of(precision);
  }
}

TEST(Phases, MistakesAreOneLine) {
  const test::TempDir folder;
  Trainer trainer(adam_config());
  EXPECT_ERROR(ArgumentError, trainer.phase("a/b"), "phase", "'a/b'");
  trainer.phase("one");
  EXPECT_ERROR(ArgumentError, trainer.phase("one"), "phase", "'one'");
  EXPECT_ERROR(ArgumentError, trainer.phase("two", [](TrainerConfig& own) { own.epochs = 0; }), "--epochs",
               "1", "0");
  TrainerConfig config = adam_config();
  config.resume = (folder / "file").string();
  test::write_file(config.resume, "");
  Trainer resumed(config);
  EXPECT_ERROR(ArgumentError, resumed.phase("one"), "--resume", "auto", config.resume);
}

}  // namespace athanor::phases_test
