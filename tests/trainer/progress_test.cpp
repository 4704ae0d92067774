#include "trainer/loggers/progress.h"

#include <cctype>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "autograd/loss.h"
#include "optim/sgd.h"
#include "tests/support/errors.h"
#include "tests/support/resumed_run.h"
#include "tests/support/small_training.h"
#include "tests/support/temp_dir.h"
#include "tests/support/written.h"
#include "trainer/detail/terminal.h"
#include "trainer/readable.h"

namespace athanor::progress_test {

using test::has;
using test::has_line;

/// What is written of a training of 10 steps an epoch, which `fit` begins; on a terminal of so many columns,
/// if any.
std::string shown_of(const TrainerConfig& config, int columns,
                     const std::function<void(Trainer&, const Dataset&, const Dataset&)>& fit) {
  return test::printed([&](std::FILE* out) {
    const auto train = synthetic(test::kSmallSpec, 160), held_out = synthetic(test::kSmallSpec, 20);
    Trainer trainer(config);
    trainer.add(std::make_unique<Progress>(out, columns > 0, columns));
    fit(trainer, *train, *held_out);
  });
}

std::string shown(const TrainerConfig& config, int columns = 0,
                  const std::function<void(int, const Tensor&)>& on_forward = {},
                  const std::function<void(int, const Tensor&)>& on_validation = {}) {
  return shown_of(config, columns, [&](Trainer& trainer, const Dataset& train, const Dataset& held_out) {
    test::Perceptron model;
    model.on_forward = on_forward;
    model.on_validation = on_validation;
    trainer.fit(model, train, held_out);
  });
}

const std::string kTable = "epoch   train loss";

TEST(Progress, OverwritesNothingWithoutATerminal) {
  for (const int columns : {0, 80}) {
    const std::string text = shown(test::small_config(), columns);
    if (columns == 0) {
      EXPECT_EQ(text.find('\r'), std::string::npos);
    }
    EXPECT_TRUE(text.starts_with("athanor: ")) << text;
    EXPECT_TRUE(has_line(text, {"athanor", "cpu"}));
    EXPECT_TRUE(has(text, "\n    3   ")) << text;
    EXPECT_TRUE(has_line(text, {"test accuracy", "images/s"}));
  }
}

TEST(Progress, EndsWithWhatIsSavedAndWhatToTypeNext) {
  const test::TempDir dir;
  TrainerConfig config = test::small_config();
  const std::string run = (dir / "a run").string();
  config.run_dir = run;
  config.command = {(dir / "program").string()};
  config.model = "net";
  const auto shown_anew = [&](int columns = 0) {
    std::filesystem::remove_all(run);
    return shown(config, columns);
  };
  EXPECT_TRUE(
      has(shown_anew(), "\n\nsaved   " + run + "/model.safetensors\nreport  " + run + "/report.html\n"));
  EXPECT_FALSE(has(shown_anew(), "predict")) << "there is no tool";
  test::write_file(dir / "athanor", "");
  config.ema_decay = 0.9;
  for (const int columns : {0, 40}) {  // what is to be copied is not broken
    const std::string text = shown_anew(columns);
    EXPECT_TRUE(has(text, "\nsaved   " + run + "/model.safetensors   ")) << text;
    EXPECT_TRUE(has(text, " %, running average\n        " + run + "/last.safetensors    ")) << text;
    EXPECT_TRUE(text.ends_with(" %, last step\nreport  " + run + "/report.html\nnext    " +
                               (dir / "athanor").string() + " predict '" + run + "' IMAGE...\n"))
        << text;
  }
  config.tool = "own";
  EXPECT_TRUE(has(shown_anew(), "\nnext    own predict '"));
  config.report = false;
  EXPECT_FALSE(has(shown_anew(), "report  "));
  config.model.clear();
  EXPECT_FALSE(has(shown_anew(), "predict")) << "the program alone knows how to use it";
}

TEST(Progress, ReportsHowTheThreadsWereChosen) {
  TrainerConfig config = test::small_config();
  config.threads = 0;
  EXPECT_TRUE(has_line(shown(config), {"cpu", "auto"}));
  config.threads = 1;
  EXPECT_TRUE(has_line(shown(config), {"cpu", "1 thread"}));
  EXPECT_FALSE(has_line(shown(config), {"cpu", "auto"}));
}

TEST(Progress, NotesAScheduleThatIsLongerThanTheRun) {
  TrainerConfig config = test::small_config();
  const auto noted = [&] { return has(shown(config), "note: --"); };
  EXPECT_FALSE(noted());
  config.warmup = TrainingLength{3, true};
  EXPECT_TRUE(has(shown(config), "note: --warmup 3e: "));
  config.warmup = TrainingLength{2, true};
  EXPECT_FALSE(noted());
  config.schedule_options = {.kind = ScheduleKind::multistep, .epochs = {1, 2}};
  EXPECT_TRUE(has(shown(config), "note: --schedule multistep:1,2:0.1: ")) << "after the warm-up";
  config.warmup.reset();
  EXPECT_FALSE(noted());
  config.max_steps = 5;
  EXPECT_FALSE(noted()) << "a trial";
}

TEST(Progress, NamesWhatFlagsChoose) {
  TrainerConfig config = test::small_config();
  config.flags = {{"--loss", "focal:2:0.25", "flag"},
                  {"--label-smoothing", "0.1", "default"},
                  {"--ema", "0.99", "recipe.toml"},
                  {"--repeated-aug", "3", "flag"}};
  EXPECT_TRUE(has(shown(config), "one-cycle, loss focal:2:0.25, repeated augmentation 3, EMA 0.99\n"));
}

// The flags describe another optimizer, which does not train.
TEST(Progress, DescribesNoOptimizerThatTheTaskReplaces) {
  struct Own : Task {
    test::Perceptron net;
    Own() { network("", net); }
    Tensor training_step(const Batch& batch, Step&) override {
      return cross_entropy(net(batch["image"]), batch["label"]);
    }
    std::vector<OptimizerSpec> optimizers() const override {
      return {{.name = "", .networks = {}, .make = [](ParameterArena& arena, int first_slot) {
                 return std::make_unique<Sgd>(arena, std::vector<Sgd::Group>{{}}, first_slot);
               }}};
    }
  };
  const TrainerConfig config = test::small_config();
  EXPECT_TRUE(has_line(shown(config), {"sgd", "momentum", "learning rate"}));
  const std::string own = shown_of(config, 0, [](Trainer& trainer, const Dataset& train, const Dataset&) {
    Own task;
    trainer.fit(task, train);
  });
  EXPECT_TRUE(has_line(own, {"optimizers", "learning rate"}));
  EXPECT_FALSE(has(own, "sgd")) << own;
}

TEST(Progress, AnErrorHasALineOfItsOwn) {
  const auto fit = [](Trainer& trainer, const Dataset& train, const Dataset& held_out) {
    test::Perceptron model;
    model.on_forward = [](int call, const Tensor&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(110));  // the pause between two lines
      if (call > 2) throw ArgumentError("a step failed");
    };
    EXPECT_THROW(trainer.fit(model, train, held_out), ArgumentError);
  };
  const std::string text = shown_of(test::small_config(), 80, fit);
  EXPECT_TRUE(has(text, "step 1/10")) << text;
  EXPECT_TRUE(text.ends_with("\r\033[K")) << text;
}

// A line that is longer than the terminal can not be overwritten: each refresh would leave one behind.
TEST(Progress, TheLineThatMovesFitsTheTerminal) {
  TrainerConfig config = test::small_config();
  config.epochs = 1;
  const std::string text = shown(
      config, 60, [](int, const Tensor&) { std::this_thread::sleep_for(std::chrono::milliseconds(55)); });
  const std::string erase = "\r\033[K";
  const std::size_t begin = text.find(erase) + erase.size(), end = text.find(erase, begin);
  ASSERT_NE(end, text.npos) << text;
  const std::string line = text.substr(begin, end - begin);
  EXPECT_LT(terminal::width_of(line), 60) << line;
  EXPECT_TRUE(has(line, "/10  loss ") && !has(line, "images/s")) << line;
}

TEST(Progress, WrapsLinesOnlyOnATerminal) {
  TrainerConfig config = test::small_config();
  config.device_note = "a note on it";
  const auto longest = [](const std::string& text) {
    std::istringstream lines(text);
    int most = 0;
    for (std::string line; std::getline(lines, line);)
      most = std::max(most, terminal::width_of(line.substr(line.rfind('\r') + 1)));
    return most;
  };
  const std::string plain = shown(config), narrow = shown(config, 80);
  EXPECT_GT(longest(plain), 100) << plain;
  EXPECT_TRUE(has_line(plain, {config.device_note, "precision f32", "strategy single", "seed 0"}));
  EXPECT_LE(longest(narrow), 80) << narrow;
  EXPECT_TRUE(has_line(narrow, {"athanor", "cpu", config.device_note}));
}

TEST(Progress, ATableOnANarrowTerminalHasFewerColumns) {
  for (const int columns : {30, 60, 70}) {
    std::istringstream lines(shown(test::small_config(), columns));
    int rows = 0;
    for (std::string line; std::getline(lines, line);) {
      line = line.substr(line.rfind('\r') + 1);
      const bool is_row = line.size() > 4 && line.starts_with("    ") && std::isdigit(line[4]) != 0;
      if (!line.starts_with("epoch") && !is_row) continue;
      EXPECT_LE(terminal::width_of(line), columns) << line;
      if (is_row) continue;
      ++rows;
      EXPECT_TRUE(has(line, "val acc")) << line;
      EXPECT_FALSE(has(line, "images/s")) << line;
      EXPECT_EQ(has(line, "train acc"), columns >= 70) << line;
    }
    EXPECT_EQ(rows, 1);
  }
}

TEST(Progress, OfManyMetricsTheFirstAreShown) {
  const std::string all = test::printed([](std::FILE* out) {
    Trainer trainer(test::small_config());
    Progress progress(out, false);
    EpochReport report;
    for (const char* name :
         {"val_threshold/0", "train_cells_iou/0", "train_cells_iou", "val_cells_iou/0", "val_cells_iou"})
      report.others.push_back({name, 1});
    progress.on_epoch_end(trainer, report);
    for (const char* name : {"train_a", "train_b", "val_a", "val_b"}) report.others.push_back({name, 1});
    progress.on_epoch_end(trainer, report);
  });
  EXPECT_TRUE(has(all, " train_cells_iou/0 1, train_cells_iou 1, val_cells_iou/0 1, val_cells_iou 1\n"))
      << all;
  EXPECT_FALSE(has(all, "threshold")) << all;
  EXPECT_TRUE(
      has(all, " val_cells_iou 1, val_a 1, val_b 1, train_cells_iou 1, train_a 1, train_b 1, and 2 more\n"))
      << all;
}

TEST(Progress, ThresholdsHaveTheNamesOfTheirClasses) {
  const std::string all = test::printed([](std::FILE* out) {
    const TrainerConfig config = test::small_config();
    Trainer trainer(config);
    Progress progress(out, false);
    progress.on_fit_begin(trainer, {.config = config,
                                    .spec = test::kSmallSpec,
                                    .class_names = {"cat", "dog", "hen"},
                                    .classifies = false});
    FitReport report;
    report.others = {
        {"test_mAP", 0.9}, {"test_threshold/0", 0.415}, {"test_threshold/1", NAN}, {"test_threshold/2", 0.5}};
    progress.on_fit_end(trainer, report);
  });
  EXPECT_TRUE(has(all, "\nthresholds: cat 0.415, hen 0.5\n")) << all;
  EXPECT_TRUE(has(all, ", test_mAP 0.9   in ")) << all;
  EXPECT_FALSE(has(all, "test_threshold")) << all;
}

TEST(Progress, TheStarIsExplainedAndAMissingLossIsNeverTheBest) {
  std::string text = shown(test::small_config());
  EXPECT_TRUE(has(text, " s *\n")) << text;
  EXPECT_TRUE(has_line(text, {"*", "val acc"}));
  EXPECT_LT(text.find("* "), text.find(kTable)) << text;
  text = shown(test::small_config(), 0, {},
               [](int, const Tensor& y) { y.data<float>()[0] = std::numeric_limits<float>::quiet_NaN(); });
  EXPECT_FALSE(has(text, " s *\n")) << text;
  EXPECT_TRUE(has_line(text, {"diverged", "nan", "--lr"}));
}

TEST(Progress, CountsThePlannedSteps) {
  TrainerConfig config = test::small_config();
  EXPECT_TRUE(has_line(shown(config), {"3 epochs", "10 steps", "batch 16"}));
  config.max_steps = 15;
  std::string text = shown(config);
  EXPECT_TRUE(has_line(text, {"15 steps", "3 epochs", "10", "batch 16"}));
  EXPECT_TRUE(has_line(text, {"images/s", "15 steps"}));
  config.max_steps = -1;
  config.epochs = 1;
  config.fast_dev_run = 1;
  EXPECT_TRUE(has_line(shown(config), {"1 step", "1 epoch", "10", "batch 16"}));
}

TEST(Progress, ReportsWhyARunEndsEarly) {
  const std::string ended = shown(test::small_config(), 0, [](int call, const Tensor&) {
    if (call == 1) std::raise(SIGTERM);
  });
  EXPECT_TRUE(has_line(ended, {"SIGTERM", "1 step"}));
  EXPECT_TRUE(has(ended, "\nnot validated   in ")) << ended;
  TrainerConfig config = test::small_config();
  config.max_time_s = 1e-9;
  EXPECT_TRUE(has_line(shown(config), {"stopped", "--max-time"}));
}

using ProgressResumed = test::ResumeTest;

// No empty table, and no result as if it had trained.
TEST_F(ProgressResumed, ARunThatIsOverHasNothingToDo) {
  struct Case {
    std::function<void(TrainerConfig&)> limit;
    std::vector<std::string_view> reason;
  };
  const Case cases[] = {{[](TrainerConfig&) {}, {"30 of 30 steps"}},
                        {[](TrainerConfig& config) { config.max_steps = 20; }, {"--max-steps 20"}},
                        {[](TrainerConfig& config) { config.max_time_s = 1e-9; }, {"--max-time", "0.0 s"}},
                        {[](TrainerConfig& config) {
                           config.epochs = 50;
                           config.lr = 1e-30;  // nothing gets better
                           config.early_stop = EarlyStop{"val_loss", 1};
                         },
                         {"val_loss", "1 epoch"}}};
  for (const Case& one : cases) {
    std::filesystem::remove_all(folder());
    TrainerConfig config = saving(test::small_config(), 0);
    one.limit(config);
    EXPECT_TRUE(has(shown(config), kTable));
    const std::string text = shown(from(config, "auto"));
    EXPECT_TRUE(has_line(text, one.reason));
    EXPECT_TRUE(has_line(text, {"test accuracy"}));
    EXPECT_FALSE(has(text, "stopped: ")) << text;
    const bool within_epoch = config.max_time_s < 1;  // whose row is still to be shown
    EXPECT_EQ(has(text, kTable), within_epoch) << text;
  }
}

TEST(Progress, WritesNumbersForPeople) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(rate(1.4523), "1.45");
  EXPECT_EQ(rate(0.012345), "0.0123");
  EXPECT_EQ(rate(9.996), "10");
  EXPECT_EQ(rate(14.52), "14.5");
  EXPECT_EQ(rate(99.96), "100");
  EXPECT_EQ(rate(1452.3), "1,452");
  EXPECT_EQ(rate(0), "0");
  EXPECT_EQ(rounded_rate(1452.3), 1452);
  EXPECT_EQ(duration(0.04), "0.0 s");
  EXPECT_EQ(duration(9.94), "9.9 s");
  EXPECT_EQ(duration(9.96), "10 s");
  EXPECT_EQ(duration(59.4), "59 s");
  EXPECT_EQ(duration(200), "3 min 20 s");
  EXPECT_EQ(duration(7500), "2 h 5 min");
  EXPECT_EQ(byte_size(12'345), "12.3 kB");
  EXPECT_EQ(byte_size(47'980'000), "48.0 MB");
  EXPECT_EQ(byte_size(1.25e9), "1.25 GB");
}

}  // namespace athanor::progress_test
