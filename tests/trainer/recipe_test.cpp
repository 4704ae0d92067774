// The recipe: optimizers and schedules by name, files of flags, other trainers' words.

#include "trainer/flags/recipe.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nn/models/model.h"
#include "optim/arena.h"
#include "tensor/stream.h"
#include "tests/support/errors.h"
#include "tests/support/small_training.h"
#include "tests/support/temp_dir.h"
#include "trainer/flags/detail/other_trainers.h"
#include "trainer/flags/detail/recipe_file.h"
#include "trainer/flags/detail/settings_table.h"
#include "trainer/flags/detail/spellings.h"
#include "trainer/plateau.h"

namespace athanor::test::recipe_test {

const bool no_runs = ::setenv("ATHANOR_RUNS_DIR", "none", 1) == 0;

TrainerConfig parse(const std::vector<std::string>& arguments, TrainerConfig defaults = small_config()) {
  std::vector<const char*> argv{"train"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  defaults.program = "train";
  if (defaults.models.empty()) defaults.models = {"lenet5", "resnet20"};
  return parse_flags(static_cast<int>(argv.size()), argv.data(), defaults);
}

std::string value_of(const TrainerConfig& config, const std::string& name) {
  for (const FlagValue& flag : config.flags) {
    if (flag.name == name) return flag.value + " (" + flag.from + ")";
  }
  return "none";
}

// Effects --------------------------------------------------------------------------------------------------

// Each changes what is learned: a flag that is read and ignored would leave the weights as they were.
TEST(Recipe, EveryFlagChangesTheWeights) {
  const std::vector<std::vector<std::string>> all{
      {},
      {"--optimizer", "adam"},
      {"--optimizer", "adam", "--betas", "0.8,0.999"},
      {"--optimizer", "adam", "--betas", "0.9,0.9"},
      {"--optimizer", "adamw", "--weight-decay", "0.1"},
      {"--optimizer", "adamw"},
      {"--optimizer", "muon"},
      {"--optimizer", "muon", "--momentum", "0.8"},
      {"--lr", "0.05"},
      {"--momentum", "0.8"},
      {"--momentum", "0"},
      {"--nesterov", "off"},
      {"--weight-decay", "0.01"},
      {"--weight-decay", "0.01", "--decay", "all"},
      {"--schedule", "constant"},
      {"--schedule", "step:1"},
      {"--schedule", "step:1:0.5"},
      {"--schedule", "multistep:1,2:0.7"},
      {"--schedule", "cosine"},
      {"--schedule", "linear", "--warmup", "5"},
      {"--schedule", "cosine", "--min-lr", "0.01"},
      {"--schedule", "cosine", "--warmup", "5"},
      {"--schedule", "cosine", "--warmup", "1.5e"},
      {"--min-lr", "0.01"},
      {"--warmup", "3"},
      {"--scale-lr", "linear:256"},
      {"--scale-lr", "sqrt:256"},
      {"--label-smoothing", "0.1"},
  };
  std::map<std::uint64_t, std::string> seen;
  for (const auto& flags : all) {
    std::string words;
    for (const std::string& flag : flags) words += flag + " ";
    const auto [at, fresh] = seen.emplace(run(parse(flags)).report.weights_hash, words);
    EXPECT_TRUE(fresh) << "'" << words << "' trains as '" << at->second << "' does";
    for (const std::string& flag : flags) {
      const detail::SettingRow* const row = detail::find_setting(flag);
      if (row && flag != "--optimizer") {  // of which the networks' own names are compared
        EXPECT_EQ(row->same, detail::Same::run) << flag << " must be equal in a resumed run";
      }
    }
  }
}

TEST(Recipe, OptimizersBringTheirUsualSettings) {
  const TrainerConfig adamw = parse({"--optimizer", "adamw"});
  EXPECT_EQ(adamw.lr, 0.001);
  EXPECT_EQ(adamw.weight_decay, 0.01);
  EXPECT_EQ(value_of(adamw, "--lr"), "0.001 (default)");
  const TrainerConfig muon = parse({"--optimizer", "muon", "--lr", "0.3"});
  EXPECT_EQ(muon.lr, 0.3);
  EXPECT_EQ(muon.momentum, 0.95);
  EXPECT_EQ(parse({"--optimizer", "adam"}).weight_decay, 0);
  EXPECT_EQ(parse({"--optimizer", "sgd"}).lr, small_config().lr);
}

TEST(Recipe, AFlagReplacesWhatTheProgramBrings) {
  TrainerConfig own = small_config();
  own.schedule = [](double, std::int64_t) { return schedules::constant(1); };
  own.optimizer = [](ParameterArena&) -> std::unique_ptr<Optimizer> { return nullptr; };
  const TrainerConfig config = parse({"--schedule", "cosine", "--optimizer", "sgd"}, own);
  EXPECT_FALSE(config.schedule);
  EXPECT_FALSE(config.optimizer);
  EXPECT_THROW(check_recipe_is_used(parse({"--momentum", "0.5"}, own), false, false), ArgumentError);
  EXPECT_THROW(check_recipe_is_used(parse({"--warmup", "3"}, own), false, false), ArgumentError);
  EXPECT_THROW(check_recipe_is_used(parse({"--betas", "0.5,0.9"}), true, false), ArgumentError);
  EXPECT_THROW(check_recipe_is_used(parse({"--min-lr", "0.001"}), false, true), ArgumentError);
  EXPECT_THROW(check_recipe_is_used(parse({"--scale-lr", "linear:256"}), false, true), ArgumentError);
  EXPECT_NO_THROW(check_recipe_is_used(parse({"--scale-lr", "linear:256"}, own), false, false));
  EXPECT_NO_THROW(check_recipe_is_used(parse({}, own), true, true));
}

TEST(Recipe, AFlagThatNothingReadsIsRefused) {
  const auto refused = [](const std::vector<std::string>& flags) {
    return message_of([&] { check_recipe_is_used(parse(flags), false, false); });
  };
  EXPECT_TRUE(
      names(refused({"--optimizer", "adamw", "--momentum", "0.9"}), {"--momentum", "adamw", "--betas"}));
  EXPECT_EQ(refused({"--optimizer=AdamW", "--betas=0.9,0.99"}), "");
  EXPECT_TRUE(names(refused({"--nesterov", "on", "--optimizer", "adam"}), {"--nesterov", "adam", "--betas"}));
  EXPECT_TRUE(names(refused({"--betas", "0.9,0.99"}), {"--betas", "sgd", "--momentum"}));
  EXPECT_EQ(refused({"--optimizer=muon", "--betas=0.9,0.99", "--momentum=0.9"}), "");
  EXPECT_TRUE(
      names(refused({"--schedule=constant", "--min-lr=0.001"}), {"--min-lr", "constant", "--schedule"}));
  EXPECT_EQ(refused({"--schedule=plateau", "--min-lr=0.001"}), "");
  // A run's recipe lists both, so that any version trains the same way again.
  const test::TempDir folder;
  std::ofstream(folder / "adamw.toml") << "optimizer = \"adamw\"\nmomentum = \"0.9\"\n";
  EXPECT_EQ(refused({"--recipe", (folder / "adamw.toml").string()}), "");
}

// Schedules ------------------------------------------------------------------------------------------------

std::vector<float> rates(const std::vector<std::string>& flags, std::int64_t steps = 8) {
  std::vector<std::string> all = flags;
  all.insert(all.end(), {"--lr", "1"});
  const Schedule schedule = make_schedule(parse(all), steps, 2);
  std::vector<float> rates;
  for (std::int64_t step = 0; step < steps; ++step) rates.push_back(schedule(step));
  return rates;
}

void expect_near(const std::vector<float>& mine, const std::vector<double>& wanted) {
  ASSERT_EQ(mine.size(), wanted.size());
  for (std::size_t i = 0; i < mine.size(); ++i) EXPECT_NEAR(mine[i], wanted[i], 1e-6) << "step " << i;
}

TEST(RecipeSchedule, HasTheRatesOfItsName) {
  expect_near(rates({"--schedule", "constant"}), {1, 1, 1, 1, 1, 1, 1, 1});
  expect_near(rates({"--schedule", "step:2:0.5"}), {1, 1, 1, 1, .5, .5, .5, .5});
  expect_near(rates({"--schedule", "multistep:1,3"}), {1, 1, .1, .1, .1, .1, .01, .01});
  expect_near(rates({"--schedule", "multistep:1,3", "--min-lr", "0.05"}), {1, 1, .1, .1, .1, .1, .05, .05});
  expect_near(rates({"--schedule", "constant", "--warmup", "4"}), {.25, .4375, .625, .8125, 1, 1, 1, 1});
  expect_near(rates({"--schedule", "constant", "--warmup", "1e"}), {.5, .75, 1, 1, 1, 1, 1, 1});
  std::vector<double> linear;
  for (int i = 0; i < 8; ++i) linear.push_back(1 - 0.9 * i / 8);
  expect_near(rates({"--schedule", "linear", "--min-lr", "0.1"}), linear);
  std::vector<double> cosine;
  for (int i = 0; i < 8; ++i) cosine.push_back(0.1 + 0.45 * (1 + std::cos(M_PI * i / 8)));
  expect_near(rates({"--schedule", "cosine", "--min-lr", "0.1"}), cosine);
}

TEST(RecipeSchedule, OneCycleRisesForItsWarmUpAndEndsAtItsLowest) {
  const std::vector<float> cycle = rates({"--warmup", "4", "--min-lr", "0.001"});
  EXPECT_NEAR(cycle[0], 1.0 / 25, 1e-6);
  EXPECT_NEAR(cycle[3], 1, 1e-6);
  EXPECT_NEAR(cycle[7], 0.001, 1e-6);
  const std::vector<float> high = rates({"--warmup", "4", "--min-lr", "0.1"});  // above a 25th of the highest
  for (const float rate : high) EXPECT_GE(rate, 0.1F);
  EXPECT_NEAR(high[3], 1, 1e-6);
}

// A rate that suits 16 images diverges with fewer; one that the user gave is the user's.
TEST(RecipeSchedule, ARateThatNoFlagSetsIsLoweredForASmallerBatch) {
  const TrainerConfig small = parse({"--batch-size", "4"});
  EXPECT_DOUBLE_EQ(small.lr, 0.025);
  EXPECT_EQ(value_of(small, "--lr"), "0.025 (default)") << "what recipe.toml says";
  EXPECT_TRUE(names(describe_recipe(small, false), {"0.025 (0.1 for 16 images, scaled to 4)"}));
  EXPECT_DOUBLE_EQ(parse({"--batch-size", "4", "--accumulate", "2"}).lr, 0.05);
  EXPECT_DOUBLE_EQ(parse({"--batch-size", "4", "--optimizer", "adamw"}).lr, 0.0005) << "by the root";
  for (const std::string more : {"16", "64"}) {
    EXPECT_EQ(parse({"--batch-size", more}).lr, 0.1);
    EXPECT_FALSE(names(describe_recipe(parse({"--batch-size", more}), false), {"scaled"}));
  }
  EXPECT_EQ(parse({"--batch-size", "4", "--lr", "0.1"}).lr, 0.1);
  EXPECT_DOUBLE_EQ(highest_rate(parse({"--batch-size", "4", "--scale-lr", "sqrt:16"})), 0.05);
  TrainerConfig own = small_config();
  own.schedule = [](double lr, std::int64_t) { return schedules::constant(lr); };
  EXPECT_EQ(parse({"--batch-size", "4"}, own).lr, 0.1) << "the program has rates of its own";
}

TEST(RecipeSchedule, TheRateGrowsWithTheBatch) {
  const auto highest = [](const std::vector<std::string>& flags) { return highest_rate(parse(flags)); };
  EXPECT_DOUBLE_EQ(highest({"--lr", "0.1", "--batch-size", "512", "--scale-lr", "linear:256"}), 0.2);
  EXPECT_DOUBLE_EQ(highest({"--lr", "0.1", "--batch-size", "1024", "--scale-lr", "sqrt:256"}), 0.2);
  EXPECT_DOUBLE_EQ(
      highest({"--lr", "0.1", "--batch-size", "64", "--accumulate", "8", "--scale-lr", "linear:256"}), 0.2);
  EXPECT_DOUBLE_EQ(highest({"--lr", "0.1", "--batch-size", "512"}), 0.1);
}

/// The learning rate after each of these validations.
std::vector<double> plateau(const std::vector<double>& losses, const std::string& schedule,
                            const std::vector<std::string>& more = {}) {
  std::vector<std::string> flags{"--schedule", schedule, "--lr", "1"};
  flags.insert(flags.end(), more.begin(), more.end());
  ReduceOnPlateau::Options options = plateau_options(parse(flags));
  double rate = 1;
  std::vector<double> rates;
  ReduceOnPlateau rule(options);
  for (const double loss : losses) {
    rate *= rule.update(loss);
    rates.push_back(rate);
  }
  return rates;
}

TEST(RecipeSchedule, APlateauLowersTheRate) {
  using Rates = std::vector<double>;
  EXPECT_EQ(plateau({5, 4, 4, 4, 4}, "plateau:1:0.5"), (Rates{1, 1, 1, .5, .5}));
  EXPECT_EQ(plateau({5, 5, 5, 5}, "plateau:0:0.5"), (Rates{1, .5, .25, .125}));
  EXPECT_EQ(plateau({5, 5, 4, 4}, "plateau:0:0.5"), (Rates{1, .5, .5, .25}));
  EXPECT_EQ(plateau({5, 4.9999, 4.9998}, "plateau:0:0.5"), (Rates{1, .5, .25})) << "gains too small to count";
  EXPECT_EQ(plateau({5, 5, 5, 5}, "plateau:0:0.5", {"--min-lr", "0.3"}), (Rates{1, .5, .3, .3}));
  EXPECT_EQ(plateau({5, 6, 7, 7}, "plateau:0:0.5", {"--monitor", "val_accuracy"}), (Rates{1, 1, 1, .5}));
  // As PyTorch counts: what is no number is no improvement, not even as the first.
  EXPECT_EQ(plateau({5, NAN, 4}, "plateau:0:0.5"), (Rates{1, .5, .5}));
  EXPECT_EQ(plateau({INFINITY, NAN, 4, 5}, "plateau:0:0.5"), (Rates{.5, .25, .25, .125}));
}

TEST(RecipeSchedule, APlateauComesBackFromACheckpoint) {
  const TempDir folder;
  TrainerConfig config = parse({"--schedule", "plateau:0:0.5", "--weight-decay", "0", "--epochs", "6"});
  config.lr = 1e-30;  // nothing gets better
  config.checkpoint_dir = folder.path() / "whole";
  const RecordedRun whole = run(config);
  ASSERT_LT(whole.epochs.back().learning_rate, 0.1f * whole.epochs.front().learning_rate);
  config.checkpoint_dir = folder.path() / "parts";
  config.max_steps = 35;  // in the middle of the fourth epoch
  run(config);
  config.max_steps = -1;
  config.resume = "auto";
  const RecordedRun resumed = run(config);
  EXPECT_EQ(resumed.epochs.back().learning_rate, whole.epochs.back().learning_rate);
  EXPECT_EQ(resumed.report.weights_hash, whole.report.weights_hash);
}

// Bad input ------------------------------------------------------------------------------------------------

TEST(Recipe, WrongValuesAreRejectedInOneLine) {
  struct Case {
    std::vector<std::string> arguments, values;
  };
  const std::vector<Case> cases{
      {{"--optimizer", "adamm"}, {"sgd", "adam", "adamw", "muon", "'adamm'"}},
      {{"--betas", "0.9"}, {"0.9,0.999", "'0.9'"}},
      {{"--betas", "0.9,1"}, {"[0, 1)", "1"}},
      {{"--momentum", "1"}, {"[0, 1)", "1"}},
      {{"--momentum", "nan"}, {"[0, 1)", "nan"}},
      {{"--weight-decay", "-1"}, {"0", "1e15", "-1"}},
      {{"--nesterov", "maybe"}, {"on", "off", "'maybe'"}},
      {{"--decay", "some"}, {"matrices", "all", "'some'"}},
      {{"--schedule", "step"}, {"step:30", "step:30:0.1", "multistep:30,60", "'step'"}},
      {{"--schedule", "cosine:3"}, {"cosine", "'cosine:3'"}},
      {{"--schedule", "multistep:30,20"}, {"epochs", "'multistep:30,20'"}},
      {{"--schedule", "step:1:2"}, {"1e-06", "0.999999", "2"}},
      {{"--schedule", "step:1,2"}, {"step", "'step:1,2'", "multistep"}},
      {{"--warmup", "x"}, {"5e", "'x'"}},
      {{"--warmup", "nane"}, {"0", "1e9", "nane"}},
      {{"--scale-lr", "linear"}, {"--lr", "linear:256", "'linear'"}},
      {{"--scale-lr", "cubic:3"}, {"linear", "sqrt", "'cubic'"}},
      {{"--label-smoothing", "1"}, {"[0, 1)", "1"}},
      {{"--dropout", "1.5"}, {"[0, 1)", "1.5"}},
  };
  for (const auto& one : cases) {
    const auto& arguments = one.arguments;  // Clang 14 lets no lambda capture a structured binding
    const auto& values = one.values;
    SCOPED_TRACE(arguments[0] + " " + arguments[1]);
    EXPECT_ERROR(ArgumentError, parse(arguments), arguments[0]);
    EXPECT_TRUE(names(message_of([&] { parse(arguments); }), values));
  }
  EXPECT_ERROR(ArgumentError, make_schedule(parse({"--min-lr", "1"}), 10, 5), "--min-lr", "1");
}

// Files ----------------------------------------------------------------------------------------------------

TEST(RecipeFile, GivesTheRunBack) {
  const TempDir folder;
  const TrainerConfig config = parse({"--optimizer", "adamw", "--schedule", "multistep:1,2:0.5", "--warmup",
                                      "2", "--freeze", "a", "--freeze", "b:3", "--deterministic"});
  write_recipe(folder.path(), config);
  const std::string file = (folder.path() / "recipe.toml").string();
  const TrainerConfig back = parse({"--recipe", file});
  EXPECT_EQ(back.optimizer_kind, OptimizerKind::adamw);
  EXPECT_EQ(back.lr, 0.001);
  EXPECT_EQ(back.schedule_options, config.schedule_options);
  EXPECT_EQ(back.warmup, config.warmup);
  EXPECT_TRUE(back.deterministic);
  ASSERT_EQ(back.freeze.size(), 2u);
  EXPECT_EQ(back.freeze[1].epochs, 3);
  EXPECT_EQ(value_of(back, "--warmup"), "2 (" + file + ")");
  const TrainerConfig other = parse({"--recipe=" + file, "--wd", "0.5", "--max_epochs=9"});
  EXPECT_EQ(other.weight_decay, 0.5) << "the command line wins, under any of a flag's names";
  EXPECT_EQ(value_of(other, "--epochs"), "9 (flag)");
}

TEST(RecipeFile, KeepsTheWordOfASwitchThatMayHaveOne) {
  const TempDir folder;
  const std::string file = (folder.path() / "recipe.toml").string();
  for (const auto& [flag, what] : {std::pair("--freeze-bn", FreezeNorms::statistics),
                                   {"--freeze-bn=all", FreezeNorms::all},
                                   {"--freeze-bn=none", FreezeNorms::none}}) {
    write_recipe(folder.path(), parse({flag}));
    EXPECT_EQ(parse({"--recipe", file}).freeze_norms, what) << flag;
  }
}

TEST(RecipeFile, BundledRecipesAreRead) {
  const std::filesystem::path recipes = ATHANOR_RECIPES_DIR;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(recipes)) {
    if (entry.path().extension() != ".toml") continue;
    ++count;
    TrainerConfig defaults = small_config();
    defaults.models = nn::model_names();
    std::string of_program;
    std::getline(std::ifstream(entry.path()), of_program);
    if (of_program.starts_with("# train_images ")) defaults.image_size = 224;
    EXPECT_NO_THROW(parse({"--recipe", entry.path().string()}, defaults)) << entry.path();
  }
  EXPECT_GE(count, 11);
}

TEST(RecipeFile, DamageIsReportedInOneLine) {
  const TempDir folder;
  const std::string file = (folder.path() / "a.toml").string();
  const auto of = [&](const std::string& text) {
    std::ofstream(file) << text;
    return parse({"--recipe", file});
  };
  EXPECT_ERROR(ArgumentError, of("learning-rat = 3"), "--recipe", file, "'learning-rat'");
  EXPECT_ERROR(ArgumentError, of("deterministic = 3"), "--recipe", file, "deterministic", "true", "false",
               "'3'");
  EXPECT_ERROR(ArgumentError, of("lr = 'high'"), "--lr", "'high'");
  EXPECT_ERROR(ArgumentError, of("recipe = 'b.toml'"), "--recipe", file, "'recipe'");
  for (const char* twice : {"seed = 1\nseed = 2", "seed = 1\nlr = 1\nseed = 1", "seed = [1, 2]"})
    EXPECT_ERROR(ArgumentError, of(twice), "--recipe", file, "--seed");
  EXPECT_ERROR(ArgumentError, of("epochs = 1\nmax-epochs = 2"), "--recipe", file, "--max-epochs");
  EXPECT_ERROR(ArgumentError, of(std::string("\0\xff\n[[[\n", 7)), "--recipe", file);
  EXPECT_ERROR(ArgumentError, parse({"--recipe", "nowhere.toml"}), "--recipe", "nowhere.toml");
  EXPECT_ERROR(ArgumentError, parse({"--recipe", folder.path().string()}), "--recipe",
               folder.path().string());
}

// Other trainers' words ------------------------------------------------------------------------------------

using Words = std::vector<std::string>;

TEST(Spellings, EachNameIsThatOfOneFlagHere) {
  std::set<std::string> seen;
  for (const other_trainers::Same& row : other_trainers::kSame) {
    const std::string ours(row.ours);
    EXPECT_TRUE(detail::find_setting(ours)) << ours;
    for (const std::string& theirs : read_flag::split(std::string(row.theirs), '|')) {
      EXPECT_TRUE(seen.insert(theirs).second) << theirs << " is in two rows";
      EXPECT_FALSE(detail::find_setting(theirs)) << theirs << " is a flag of its own";
      const std::string value = row.only_fractions ? "0.5" : "5";
      EXPECT_EQ(translate_flags({theirs + "=" + value}, {ours}),
                Words{ours + "=" + value + std::string(row.behind)});
    }
  }
  for (const other_trainers::SameValue& row : other_trainers::kSameValues)
    EXPECT_TRUE(detail::find_setting(std::string(row.flag)) || row.flag == "--profiler") << row.flag;
}

TEST(Spellings, SynonymsAreAccepted) {
  const Words known{"--max-epochs", "--devices", "--device",     "--batch-size",   "--profiler",
                    "--sync-bn",    "--lr",      "--resume",     "--precision",    "--fast-dev-run",
                    "--val-every",  "--warmup",  "--pin-memory", "--deterministic"};
  const Words switches{"--deterministic", "--fast-dev-run", "--sync-bn"};
  const std::pair<Words, Words> cases[]{
      {{"--max_epochs", "5", "--trainer.max_epochs=5"}, {"--max-epochs", "5", "--max-epochs=5"}},
      {{"--gpus", "-1"}, {"--device=cuda", "--devices=auto"}},
      {{"--gpus=2"}, {"--device=cuda", "--devices=2"}},
      {{"--gpus", "0", "--lr", "1"}, {"--device=cpu", "--lr", "1"}},
      {{"--warmup-epochs", "5", "--learning_rate=1"}, {"--warmup=5e", "--lr=1"}},
      {{"--val-check-interval=500"}, {"--val-every=500"}},
      {{"--profiler"}, {"--profiler=simple"}},
      {{"--profiler", "--lr", "1"}, {"--profiler=simple", "--lr", "1"}},
      {{"--profiler", "trace"}, {"--profiler", "trace"}},
      {{"--ckpt_path", "last"}, {"--resume=auto"}},
      {{"--ckpt-path=a.safetensors"}, {"--resume=a.safetensors"}},
      {{"--resume="}, {"--resume="}},  // of an empty variable
      {{"--fast_dev_run", "5", "--lr", "1"}, {"--fast-dev-run=5", "--lr", "1"}},
      {{"--fast-dev-run", "photos"}, {"--fast-dev-run", "photos"}},
      {{"-lr=1", "--LR", "1", "-a", "-10", "-5"}, {"--lr=1", "--lr", "1", "-a", "-10", "-5"}},
      {{"-b32", "-j=4", "--clip", "-b8"}, {"--batch-size=32", "-j=4", "--clip", "--batch-size=8"}},
      {{"--wd", "3", "a_b", "--"}, {"--wd", "3", "a_b", "--"}},  // no such flag here
      // A switch may get True or False.
      {{"--deterministic", "True", "x"}, {"--deterministic", "x"}},
      {{"--deterministic=false", "x"}, {"x"}},
      {{"--fast_dev_run", "True"}, {"--fast-dev-run=1"}},
      {{"--deterministic", "photos"}, {"--deterministic", "photos"}},
      {{"--pin-memory", "True"}, {"--pin-memory", "True"}},
  };
  for (const auto& [theirs, ours] : cases)
    EXPECT_EQ(translate_flags(theirs, known, switches), ours) << theirs[0];
  EXPECT_FALSE(parse({"--pin_memory", "False"}).pin_memory);
  EXPECT_EQ(parse({"--precision", "FP16"}).precision, Precision::f16);
}

TEST(Spellings, AnswersNameSubjectsOfHelp) {
  const std::string see = "see --help ";
  for (const other_trainers::Answer& row : other_trainers::kAnswers) {
    const std::string answer(row.instead);
    const std::size_t at = answer.find(see);
    if (at == answer.npos) continue;
    EXPECT_THROW(parse({"--help", answer.substr(at + see.size())}), HelpRequested) << answer;
  }
}

// What users of Lightning, timm, torchvision's references and ultralytics type, and have no flag for here.
TEST(Spellings, HabitsAreAnswered) {
  TrainerConfig images = small_config();
  images.image_size = 32;
  const std::pair<const char*, const char*> answers[]{
      {"--jsd-loss", "Task"},
      {"--min_epochs", "--early-stop"},
      {"--warmup-lr", "--warmup"},  // by the longest row that matches
      {"--amp-dtype", "--precision bf16"},
      {"--wandb-project", "--logger"},
      {"--model.data_path", "--train"},
      {"-c", "--recipe FILE"},
      {"-q", "--progress off"},
      {"--ThreeAugment", "--augment"},
      {"--ddp_backend", "NCCL"},
      {"--ddp_find_unused_parameters", "strategy"},
      {"--save_json", "--help checkpoints"},
      {"--save-best-only", "--monitor"},
      {"--model_ema", "--ema 0.999"},
      {"--model-ema-steps", "--ema 0.99998:32"},
      {"--ra-sampler", "--repeated-aug 4"},
      {"--ra-reps", "--repeated-aug 4"},
      {"--aug-repeat", "--repeated-aug 4"},
      {"--auto_augment", "trivial-augment for ta_wide"},
      {"--auto-augment", "rand-augment:2:9 for ra"},
      {"--aa", "rand-m6 is rand-augment:2:18"},
      {"--val-crop-size", "--val-image-size PIXELS"},
      {"--val-resize-size", "224 / 232 = 0.9655"},
      {"--crop_fraction", "--crop-share X"},
      {"--time", "hours"},
      {"--save_period", "--checkpoint-every STEPS or Nmin"},
      {"--amp", "for 0 or False, leave it out"},
      {"--reprob", "for 0, leave it out"},
      {"--mixup", "for 0, leave it out"},
      {"--flipud", "for 0, leave it out"},
      {"--fliplr", "without flip"},
      {"--transforms", "--help recipe"},
  };
  for (const auto& [flag, answer] : answers) {
    const std::string line = message_of<ArgumentError>([&, f = flag] { parse({f, "1"}, images); });
    EXPECT_TRUE(names(line, {fmt::format("'{}'", flag), std::string(answer)})) << line;
    EXPECT_FALSE(holds(line, "did you mean")) << line;
  }
  EXPECT_ERROR(ArgumentError, parse({"patience=5"}, images), "'--patience'", "--early-stop");
  EXPECT_ERROR(ArgumentError, parse({"--max-time", "1h"}), "--max-time", "HH:MM:SS", "'1h'");
  const TempDir dir;
  EXPECT_ERROR(ArgumentError, parse({dir.path().string(), "--input-size", "3", "224", "224"}, images),
               "'224'", "one value");
  EXPECT_ERROR(ArgumentError, parse({dir.path().string(), "more"}, images), "'more'", "cp -rs", "more/.");
  if (cuda_device_count() == 0) {
    EXPECT_THROW(parse({"--gpus", "1"}), BackendError);
  }
}

}  // namespace athanor::test::recipe_test
