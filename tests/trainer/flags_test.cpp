// The flags of a training program: each row of the table of settings is read, printed, checked and described,
// and the rules between them.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/base/version.h"
#include "tensor/stream.h"
#include "tests/support/errors.h"
#include "tests/support/parsed_flags.h"
#include "trainer/flags/detail/settings_table.h"
#include "trainer/flags/settings.h"

namespace athanor::flags_test {

using detail::SettingRow;
using detail::Takes;
using test::parse;
using test::refusal;
using Words = std::vector<std::string>;

// The table -------------------------------------------------------------------------------------------------

/// Those that this program has flags of.
const std::vector<SettingRow>& rows() {
  static const auto all = [] {
    TrainerConfig config;
    config.models = {"lenet5"};
    std::vector<SettingRow> offered;
    for (const detail::SettingGroup& group : detail::settings_table()) {
      for (const SettingRow& row : group.rows)
        if (!group.heading.empty() && row.is_offered(config)) offered.push_back(row);
    }
    return offered;
  }();
  return all;
}

/// A value that is not the default; of most flags, what --help calls it says enough.
std::string example(const SettingRow& row) {
  static const std::map<std::string, std::string> examples{{"--model", "resnet20"},
                                                           {"--optimizer", "adam"},
                                                           {"--decay", "all"},
                                                           {"--schedule", "cosine"},
                                                           {"--scale-lr", "sqrt:64"},
                                                           {"--class-weights", "cat=2,a=b=0.5"},
                                                           {"--task", "multilabel"},
                                                           {"--loss", "focal:1.5:0.5"},
                                                           {"--augment", "flip"},
                                                           {"--early-stop", "val_loss:3"},
                                                           {"--monitor", "train_loss"},
                                                           {"--freeze", "layer1:2"},
                                                           {"--data", "synthetic:9"},
                                                           {"--nan-policy", "stop"},
                                                           {"--bad-samples", "list"},
                                                           {"--order", "pages"},
                                                           {"--mean", "0.25,0.5"},
                                                           {"--std", "0.25,0.5"},
                                                           {"--sampler", "balanced"},
                                                           {"--precision", "bf16"},
                                                           {"--loss-scale", "8"},
                                                           {"--grad-dtype", "f32"},
                                                           {"--device", "cpu"},
                                                           {"--memory-limit", "2G"},
                                                           {"--graph", "off"},
                                                           {"--strategy", "zero1"},
                                                           {"--algorithm", "ring"},
                                                           {"--profile", "trace"},
                                                           {"--logger", "none"},
                                                           {"--resume", "/dev/null"},
                                                           {"--checkpoint-every", "1.5min"},
                                                           {"--pretrained", "/dev/null"},
                                                           {"--tta", "flip"},
                                                           {"--ema", "0.25:4"},
                                                           {"--betas", "0.5,0.25"}};
  const std::string value = row.value_name();
  if (examples.contains(row.name())) return examples.at(row.name());
  if (value == "on|off") return row.value.print({}) == "on" ? "off" : "on";
  if (value == "X" || value == "MU" || value == "PROB" || value == "DECAY") return "0.25";
  return value == "DIR" || value == "FILE" || value == "DIR|none" ? "x" : "7";
}

Words words_of(const SettingRow& row, const std::string& name) {
  if (row.takes == Takes::nothing) return {name};
  return {name + "=" + example(row)};
}

std::map<std::string, std::string> printed(const TrainerConfig& config) {
  std::map<std::string, std::string> values;
  for (const detail::SettingGroup& group : detail::settings_table()) {
    for (const SettingRow& row : group.rows) values[row.name()] = row.value.print(config);
  }
  return values;
}

// A row with another row's member, or one that reads nothing, would change another setting, or none.
TEST(Flags, EachChangesItsSettingAlone) {
  const auto usual = printed(parse({"--checkpoint-dir", "there"}));
  const std::map<std::string, Words> implied{{"--monitor", {"--early-stop"}},
                                             {"--optimizer", {"--lr", "--weight-decay"}},
                                             {"--batch-size", {"--lr"}},
                                             {"--run-dir", {"--metrics"}},
                                             {"--detect-anomaly", {"--nan-policy"}}};
  for (const SettingRow& row : rows()) {
    if (row.takes == Takes::optional || row.name() == "--checkpoint-dir" ||
        row.name().starts_with("--find-") || row.name() == "--lr-curve" || row.name() == "--reset-head" ||
        row.name() == "--recipe")
      continue;  // they change much, or need another flag
    SCOPED_TRACE(row.name());
    Words words = words_of(row, row.name());
    words.insert(words.end(), {"--checkpoint-dir", "there"});
    if (row.name() == "--save-top-k") words.insert(words.end(), {"--early-stop", "val_loss:1"});
    const TrainerConfig config = parse(words);
    const auto values = printed(config);
    const Words others = implied.contains(row.name()) ? implied.at(row.name()) : Words{};
    for (const auto& [name, value] : values) {
      if (name == row.name() || std::find(others.begin(), others.end(), name) != others.end()) continue;
      if (row.name() == "--save-top-k" && name == "--early-stop") continue;
      EXPECT_EQ(value, usual.at(name)) << name;
    }
    const bool prints = !values.at(row.name()).empty() && row.name() != "--monitor" &&
                        row.name() != "--detect-anomaly";  // as an --early-stop, and a --nan-policy
    EXPECT_TRUE(!prints || values.at(row.name()) != usual.at(row.name()));
  }
}

// Or a run would continue with another value, and ranks would train with different ones.
TEST(Flags, ThoseThatMustBeEqualAreComparedByName) {
  const auto of_run = [](const TrainerConfig& config) {
    const ImageSpec spec{8, 8, 1, 5};
    return settings_of({config, spec}, {}, {}, 10, "sgd");
  };
  const TrainerConfig usual = parse({});
  const StateDict saved = state_of(of_run(usual));
  EXPECT_NO_THROW(check_settings(saved, of_run(usual), false));
  for (const SettingRow& row : rows()) {
    if (row.same == detail::Same::unchecked || row.takes == Takes::optional) continue;
    SCOPED_TRACE(row.name());
    Words words = words_of(row, row.name());
    if (row.name() == "--monitor") words.emplace_back("--early-stop=val_loss:3");
    if (row.name() == "--checkpoint-every") words.emplace_back("--checkpoint-dir=there");
    const TrainerConfig changed = parse(words);
    const std::string of_resumed = test::message_of([&] { check_settings(saved, of_run(changed), false); });
    const auto of_ranks = [](const TrainerConfig& config) { return state_of(settings_of_ranks(config)); };
    const auto text = [&](const TrainerConfig& config) {
      return of_ranks(config).contains(row.key()) ? of_ranks(config).text(row.key()) : "";
    };
    if (row.same == detail::Same::run) {
      EXPECT_TRUE(test::names(of_resumed, {row.name() + " is "}));
    } else {
      EXPECT_EQ(of_resumed, "") << "a resumed run may have another value";
      EXPECT_NE(text(changed), text(usual));
    }
  }
}

TEST(Flags, ACheckpointWithoutASettingHasItsDefault) {
  const auto of_run = [](const TrainerConfig& config) {
    return settings_of({config, ImageSpec{8, 8, 1, 5}}, {}, {}, 10, "sgd");
  };
  TrainerConfig config = parse({});
  std::vector<Setting> older = of_run(config);
  EXPECT_EQ(std::erase_if(older, [](const Setting& setting) { return setting.name == "resize"; }), 1u);
  EXPECT_NO_THROW(check_settings(state_of(older), of_run(config), false));
  config.resize = ResizeMode::pad;
  EXPECT_ERROR(ArgumentError, check_settings(state_of(older), of_run(config), false),
               "--resize is pad and was crop");
}

TEST(Flags, EachHasItsOtherNames) {
  for (const SettingRow& row : rows()) {
    const Words names = read_flag::split(row.names(), ',');
    for (std::size_t i = 1; i < names.size(); ++i) {
      SCOPED_TRACE(names[i]);
      EXPECT_EQ(printed(parse(words_of(row, names[i]))), printed(parse(words_of(row, names[0]))));
    }
  }
}

TEST(Flags, AConfigMadeInCodeIsCheckedAsItsFlagsAre) {
  const auto refused = [](void (*change)(TrainerConfig&)) {
    TrainerConfig config;
    change(config);
    return test::message_of([&] { check(config); });
  };
  EXPECT_EQ(refused([](TrainerConfig&) {}), "");
  EXPECT_TRUE(test::names(refused([](auto& c) { c.epochs = 0; }), {"--epochs", "1", "0"}));
  EXPECT_TRUE(test::names(refused([](auto& c) { c.lr = NAN; }), {"--lr", "nan"}));
  EXPECT_TRUE(test::names(refused([](auto& c) { c.label_smoothing = 1; }), {"--label-smoothing", "[0, 1)"}));
  EXPECT_TRUE(test::names(refused([](auto& c) { c.workers = -2; }), {"--workers", "0", "-2"}));
  EXPECT_TRUE(
      test::names(refused([](auto& c) { c.max_overflows_at_floor = 0; }), {"max_overflows_at_floor"}));
  EXPECT_TRUE(test::names(refused([](auto& c) { c.checkpoint_every_s = 0; }), {"--checkpoint-every"}));
  EXPECT_TRUE(test::names(refused([](auto& c) { c.freeze = {{"a", 0}}; }), {"--freeze", "'a'", "1", "0"}));
}

// --help ----------------------------------------------------------------------------------------------------

std::string help(Words arguments = {"--help"}) {
  try {
    parse(arguments);
  } catch (const HelpRequested& asked) {
    return asked.what();
  }
  return {};
}

std::string without_spaces(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  return text;
}

TEST(Flags, HelpDescribesEachInAnEightyColumnTerminal) {
  const std::string text = help();
  TrainerConfig defaults;
  for (const SettingRow& row : rows()) {
    const std::string described = row.help.substr(0, row.help.find('{'));
    EXPECT_NE(without_spaces(text).find(without_spaces(row.usage + described)), std::string::npos)
        << row.usage;
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(Flags, HelpOfOneSubject) {
  EXPECT_NE(help({"--help-all"}).find("--devices"), std::string::npos);
  const std::string recipe = help({"--help", "recipe"});
  EXPECT_TRUE(recipe.starts_with("Recipe:\n"));
  EXPECT_NE(recipe.find("--optimizer"), std::string::npos);
  EXPECT_EQ(recipe.find("--devices"), std::string::npos);
  EXPECT_TRUE(help({"-h", "Several"}).starts_with("Several devices:\n"));
  EXPECT_ERROR(ArgumentError, parse({"--help", "tricks"}), "--help tricks", "training", "recipe");
}

TEST(Flags, VersionNamesTheProgramAndItsVersion) {
  EXPECT_NE(help({"--version"}).find(std::string("(Athanor) ") + version()), std::string::npos);
}

// Mistakes --------------------------------------------------------------------------------------------------

// Neither wraps around, becomes 0 on the way to f32, nor ends in another flag's name, or in none.
TEST(Flags, InvalidNumbersAreRejectedByName) {
  const Words texts{"NAME", "DIR", "PATH", "P",    "T",      "D",    "A",
                    "O",    "G",   "FILE", "KIND", "METRIC", "WHAT", "LIST"};
  const std::map<std::string, std::string> before{{"METRIC:PATIENCE", "val_loss:"},
                                                  {"PREFIX[:EPOCHS]", "layer1:"},
                                                  {"B1,B2", "0.9,"},
                                                  {"RULE:BATCH", "linear:"},
                                                  {"POLICY", "skip:"}};
  int numeric = 0;
  for (const SettingRow& row : rows()) {
    const std::string shown = row.value_name(), flag = row.name();
    const bool is_word = std::find(texts.begin(), texts.end(), shown) != texts.end() || shown.find('|') < 8;
    if (shown.empty() || (is_word && flag != "--checkpoint-every") || flag == "--strategy") continue;
    SCOPED_TRACE(flag);
    ++numeric;
    for (const std::string value : {"9223372036854775807", "1e-320"}) {
      const std::string text = (before.contains(shown) ? before.at(shown) : "") + value;
      const std::string message = refusal({flag, text, "--checkpoint-dir", "x"});
      // As good a seed as any; and a rate that is too high is found out by training, which names the flag.
      if (value[0] == '9' && (flag == "--seed" || flag == "--lr")) {
        EXPECT_EQ(message, "");
        continue;
      }
      EXPECT_TRUE(message.starts_with(flag + ": ")) << message;
      EXPECT_TRUE(test::names(message, {flag}));
    }
  }
  EXPECT_GE(numeric, 35);
}

TEST(Flags, MistakesGiveOneHelpfulLine) {
  struct Case {
    Words arguments, values;
  };
  const std::vector<Case> cases{
      // A flag or a word.
      {{"--epoch", "3"}, {"'--epoch'", "'--epochs'"}},
      {{"--epoch", "3", "--lrr=1", "--nonsense", "-1", "--lrr", "2"},
       {"'--epoch'", "'--epochs'", "'--lrr'", "'--lr'", "'--nonsense'"}},
      {{"--lr", "--epochs", "3"}, {"--lr", "--epochs"}},
      {{"--lr"}, {"--lr"}},
      {{"resnet20"}, {"train", "'resnet20'"}},
      {{"epochs=3"}, {"'epochs=3'", "'--epochs=3'"}},
      {{"--freeze", "layer1", "layer2"}, {"train", "'layer2'"}},
      {{"--image-size", "64"}, {"train", "'--image-size'"}},
      {{"--lr", "1", "--lr", "2"}, {"--lr"}},
      {{"--epochs", "3", "--max_epochs=4"}, {"--max-epochs"}},
      {{"--fast-dev-run", "--fast-dev-run=2"}, {"--fast-dev-run"}},
      // A value.
      {{"--max_epochs", "-1"}, {"--epochs", "-1", "--max-time"}},
      {{"--model", "resnet2"}, {"--model", "'resnet2'", "'resnet20'"}},
      {{"--model", "resnet20d"}, {"--model", "'resnet20d'", "'resnet20'"}},
      {{"--lr", "inf"}, {"--lr", "inf"}},
      {{"--lr", "0.1x"}, {"--lr", "'0.1x'"}},
      {{"--epochs", "3.5"}, {"--epochs", "'3.5'"}},
      {{"--threads", "5000"}, {"--threads", "1024", "5000"}},
      {{"--memory-limit", "500X"}, {"--memory-limit", "'500X'"}},
      {{"--memory-limit", "GiB"}, {"--memory-limit", "'GiB'"}},
      {{"--memory-limit", "1.2.3G"}, {"--memory-limit", "'1.2.3'"}},
      {{"--memory-limit", "0.1"}, {"--memory-limit", "'0.1'"}},
      {{"--opt", "lamb"}, {"--optimizer lamb", "sgd", "adam", "adamw", "muon"}},
      {{"--memory-limit", "99999999999T"}, {"--memory-limit", "99999999999"}},
      {{"--precision", "fp8"}, {"--precision", "f32", "tf32", "bf16", "f16", "'fp8'"}},
      {{"--precision", "16-true"}, {"--precision 16-true", "f16"}},
      {{"--early-stop", "val_loss"}, {"--early-stop", "METRIC:PATIENCE", "'val_loss'"}},
      {{"--early-stop", "val_los:3"}, {"--early-stop", "'val_los'", "'val_loss'"}},
      {{"--early-stop", "val_loss:lower"}, {"--early-stop", "METRIC:PATIENCE:min", "'val_loss:lower'"}},
      {{"--freeze", "layer1:soon"}, {"--freeze", "'soon'"}},
      {{"--freeze", ":3"}, {"--freeze", "PREFIX:EPOCHS", "':3'"}},
      {{"--report", "maybe"}, {"--report", "'maybe'"}},
      {{"--summary=maybe"}, {"--summary", "'maybe'"}},
      {{"--device", "tpu"}, {"--device", "'tpu'"}},
      {{"--device", "0,1"}, {"--device", "'0,1'", "--devices N"}},
      {{"--devices", "0,1"}, {"--devices", "'0,1'", "CUDA_VISIBLE_DEVICES"}},
      {{"--strategy", "horovod"}, {"--strategy", "single", "ddp", "zero1", "'horovod'"}},
      {{"--strategy", "fsdp"}, {"--strategy fsdp", "zero1"}},
      {{"--strategy", "dp"}, {"--strategy dp", "ddp"}},
      {{"--data", "photos"}, {"--data", "'photos'", "--data-dir"}},
      {{"--bad-samples", "ignore"}, {"--bad-samples", "strict", "skip", "skip:LIMIT", "list", "'ignore'"}},
      {{"--metrics", ""}, {"--metrics"}},
      // Together.
      {{"--reset-head"}, {"--reset-head", "--pretrained"}},
      {{"--pretrained", "/nowhere/x"}, {"--pretrained", "/nowhere/x"}},
      {{"--pretrained", "resnet18", "--model", "lenet5"}, {"--pretrained", "resnet18", "lenet5"}},
      {{"--precision", "tf32", "--device", "cpu"}, {"--precision tf32", "cpu", "f32", "bf16"}},
      {{"--strategy", "single", "--devices", "2"}, {"--strategy single", "--devices 2", "ddp", "zero1"}},
      {{"--checkpoint-every", "5"}, {"--checkpoint-every", "--checkpoint-dir", "--run-dir"}},
      {{"--resume", "auto"}, {"--resume auto", "--checkpoint-dir", "--run-dir"}},
      {{"--resume", "/none/such"}, {"--resume", "auto", "/none/such"}},
      {{"--resume", "/tmp"}, {"--resume", "/tmp", "--run-dir"}},
      {{"--checkpoint-dir", "x", "--resume", "auto", "--fast-dev-run"}, {"--fast-dev-run", "--resume"}},
      {{"--find-lr", "--find-batch-size"}, {"--find-lr", "--find-batch-size"}},
      {{"--lr-curve", "c.svg"}, {"--lr-curve", "--find-lr"}},
      {{"--find-lr", "--fast-dev-run"}, {"--find-lr", "--fast-dev-run"}},
      {{"--find-batch-size", "--checkpoint-dir", "x", "--resume", "auto"}, {"--find-batch-size", "--resume"}},
      {{"--monitor", "val_psnr"}, {"--monitor", "val_psnr", "val_psnr:min", "val_psnr:max"}},
      {{"--monitor", "val_los"}, {"--monitor", "val_loss", "val_accuracy", "'val_los'", "'val_loss'"}},
      {{"--monitor", "val_x:max", "--early-stop", "val_x:3:min"}, {"--monitor", "--early-stop", "val_x"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.arguments[0] + " " + (c.arguments.size() > 1 ? c.arguments[1] : ""));
    EXPECT_TRUE(test::names(refusal(c.arguments), c.values));
  }
}

TEST(Flags, AMissingDeviceIsNamed) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "there is a device";
  for (const char* text : {"cuda", "cuda:1", "gpu"})
    EXPECT_ERROR(BackendError, parse({"--device", text}), fmt::format("--device {}", text), "--device cpu");
  EXPECT_TRUE(test::names(parse({}).device_note, {"CUDA"}));
  EXPECT_LT(parse({}).device_note.size(), 40u) << "none was asked for";
  EXPECT_EQ(parse({"--device", "cpu"}).device_note, "");
}

// Values ----------------------------------------------------------------------------------------------------

TEST(Flags, WordsStandForValues) {
  EXPECT_EQ(parse({"--workers=auto"}).workers, LoaderOptions::kAuto);
  EXPECT_EQ(parse({"--threads", "auto"}).threads, TrainerConfig::kMeasuredThreads);
  EXPECT_EQ(parse({"--devices", "auto"}).devices, TrainerConfig::kAllDevices);
  EXPECT_EQ(parse({"--fast-dev-run"}).fast_dev_run, 1);
  EXPECT_EQ(parse({"--memory-limit", "2GiB"}).memory_limit, std::int64_t{2} << 30);
  EXPECT_EQ(parse({"--memory-limit", "1.5G"}).memory_limit, std::int64_t{3} << 29);
  EXPECT_EQ(parse({"--bad-samples=skip:12"}).bad_samples.limit, 12);
  EXPECT_EQ(parse({"--bad-samples=skip"}).bad_samples.limit, -1);
  EXPECT_TRUE(parse({"--bad-samples=list"}).bad_samples.list);
  for (const auto& [word, precision] : {std::pair{"32-true", Precision::f32},
                                        {"16", Precision::f16},
                                        {"16-mixed", Precision::f16},
                                        {"bf16-mixed", Precision::bf16},
                                        {"BF16", Precision::bf16}})
    EXPECT_EQ(parse({"--precision", word}).precision, precision) << word;
}

// So that a flag that a recipe sets can be taken back, and other trainers' off values mean what they say.
TEST(Flags, OffValuesAreTheDefault) {
  const std::vector<Words> all{
      {"--clip-norm", "0"},     {"--clip-norm", "none"},  {"--clip-value", "0"},
      {"--skip-outliers", "0"}, {"--ema", "0"},           {"--ema", "none"},
      {"--layer-decay", "0"},   {"--repeated-aug", "0"},  {"--aug-repeats", "0.0"},
      {"--save-top-k", "0"},    {"--memory-limit", "0"},  {"--max-time", "none"},
      {"--early-stop", "none"}, {"--monitor", "none"},    {"--freeze", "none"},
      {"--profile", "none"},    {"--pretrained", "none"}, {"--resume", "False"},
      {"--fast-dev-run=0"},     {"--sampler", "none"},    {"--class-weights", "none"},
      {"--scale-lr", "none"},   {"--tta", "none"},        {"--freeze-bn=none"}};
  const auto usual = printed(parse({}));
  for (const Words& words : all) EXPECT_EQ(printed(parse(words)), usual) << words[0] << " " << words.back();
  EXPECT_EQ(parse({"--schedule", "none"}).schedule_options.kind, ScheduleKind::constant);
  EXPECT_EQ(parse({"--dropout", "0"}).dropout, 0.0);
  const TrainerConfig watched = parse({"--early-stop", "none", "--monitor", "val_loss"});
  EXPECT_EQ(watched.early_stop->patience, EarlyStop::kNever) << "keeps the best weights, and never stops";
}

TEST(Flags, ImagesOfAnySizeArePreparedOnEither) {
  TrainerConfig defaults;
  defaults.image_size = 224;
  const auto parsed = [&](std::vector<const char*> flags) {
    flags.insert(flags.begin(), {"program", "--device", "cpu"});
    return parse_flags(static_cast<int>(flags.size()), flags.data(), defaults);
  };
  EXPECT_EQ(parsed({"--image-size", "64"}).image_size, 64);
  const TrainerConfig progressive = parsed({"--image-size", "160:0,192:10"});
  EXPECT_EQ(progressive.image_size, 192);
  EXPECT_EQ(progressive.image_sizes, (std::vector<SizeFrom>{{{160, 160}, 0}, {{192, 192}, 10}}));
  EXPECT_EQ(progressive.validated_image_size(), (ImageSize{192, 192}));
  EXPECT_EQ(parsed({"--val-image-size", "256"}).validated_image_size(), (ImageSize{256, 256}));
  EXPECT_ERROR(ArgumentError, parsed({"--image-size", "160,192:10"}), "--image-size", "'160,192:10'");
  EXPECT_ERROR(ArgumentError, parsed({"--image-size", "160:0,0:10"}), "--image-size", "1", "0");
  EXPECT_ERROR(ArgumentError, parsed({"--image-size", "160:1,192:10"}), "--image-size", "160:1,192:10");
  const TrainerConfig wide = parsed({"--image-size", "96x160:0,192x320:2", "--val-image-size", "224x384"});
  EXPECT_EQ(wide.image_sizes, (std::vector<SizeFrom>{{{96, 160}, 0}, {{192, 320}, 2}}));
  EXPECT_EQ(wide.size_of_images(), (ImageSize{192, 320}));
  EXPECT_EQ(wide.validated_image_size(), (ImageSize{224, 384}));
  EXPECT_EQ(parsed({"--resize-on", "CPU", "--decode", "cpu"}).resize_on, ImageWork::cpu);
  EXPECT_EQ(parsed({"--resize", "cpu"}).resize_on, ImageWork::cpu) << "its earlier name";
  EXPECT_ERROR(ArgumentError, parsed({"--decode", "on"}), "--decode", "'on'");
  EXPECT_ERROR(ArgumentError, parsed({"--resize-on", "gpu"}), "--resize-on gpu", "cpu");
  EXPECT_ERROR(ArgumentError, parsed({"--decode", "gpu"}), "--decode gpu", "cpu");
  const char* of_tasks[] = {"dcgan", "--pretrained", "x"};
  EXPECT_ERROR(ArgumentError, parse_flags(3, of_tasks, {.program = "dcgan"}), "dcgan", "'--pretrained'");
}

TEST(Flags, ImagesFitTheirSizeAsAsked) {
  TrainerConfig defaults;
  defaults.image_size = 224;
  defaults.models = {"resnet18"};
  const auto parsed = [&](std::vector<const char*> flags) {
    flags.insert(flags.begin(), {"program", "--device", "cpu"});
    return parse_flags(static_cast<int>(flags.size()), flags.data(), defaults);
  };
  EXPECT_EQ(parsed({}).size_of_images(), (ImageSize{224, 224}));
  EXPECT_EQ(parsed({"--image-size", "192x320"}).size_of_images(), (ImageSize{192, 320}));
  EXPECT_EQ(parsed({"--image-size", "64x64"}).image_width, 0) << "a square is written as one number";
  EXPECT_ERROR(ArgumentError, parsed({"--image-size", "1x2x3"}), "--image-size", "192x320", "'1x2x3'");
  EXPECT_ERROR(ArgumentError, parsed({"--image-size", "192x0"}), "--image-size", "at least 1");
  EXPECT_ERROR(ArgumentError, parsed({"--image-size", "224px"}), "--image-size", "192x320", "'224px'");
  const TrainerConfig padded = parsed({"--resize", "pad", "--pad-value", "0", "--interpolation", "bicubic"});
  EXPECT_EQ(padded.resize, ResizeMode::pad);
  EXPECT_EQ(padded.resize_on, ImageWork::automatic);
  EXPECT_EQ(padded.padding, 0);
  EXPECT_EQ(padded.interpolation, Resampling::bicubic);
  EXPECT_EQ(parsed({"--crop-pct", "0.95"}).crop_share, 0.95);
  EXPECT_ERROR(ArgumentError, parsed({"--resize", "stretch"}), "--resize", "crop, pad or squash", "stretch");
  EXPECT_ERROR(ArgumentError, parsed({"--crop-share", "1.5"}), "--crop-share", "1.5");
  EXPECT_ERROR(ArgumentError, parsed({"--pad-value", "256"}), "--pad-value", "255");
  const TrainerConfig grey = parsed({"--mean", "0.5", "--std", "0.25"});
  EXPECT_EQ(grey.pixel_mean, std::vector{0.5});
  EXPECT_EQ(grey.pixel_stddev, std::vector{0.25});
  EXPECT_ERROR(ArgumentError, parsed({"--mean", "123.7", "--std", "0.2"}), "--mean", "bytes / 255");
  EXPECT_ERROR(ArgumentError, parsed({"--mean", "0.5", "--std", "0"}), "--std", "0.001");
}

TEST(Flags, ATaskBringsItsUsualSettings) {
  TrainerConfig defaults;
  defaults.image_size = 224;
  defaults.model = "resnet18";
  defaults.models = {"resnet18"};
  defaults.lr = 0.5;
  defaults.label_smoothing = 0.1;
  const auto parsed = [&](std::vector<const char*> flags) {
    flags.insert(flags.begin(), {"program", "--device", "cpu", "--run-dir", "none"});
    return parse_flags(static_cast<int>(flags.size()), flags.data(), defaults);
  };
  const TrainerConfig classes = parsed({}), several = parsed({"--task", "multilabel", "--loss", "focal:1"}),
                      numbers = parsed({"--task", "regression", "--loss", "huber:0.5"});
  EXPECT_EQ(classes.task, LabelKind::classes);
  EXPECT_EQ(classes.label_smoothing, 0.1);
  EXPECT_EQ(several.loss, (TaskLoss{.kind = LossKind::focal, .gamma = 1}));
  EXPECT_EQ(several.label_smoothing, 0);
  EXPECT_EQ(several.lr, 0.5);
  EXPECT_EQ(numbers.loss, (TaskLoss{.kind = LossKind::huber, .delta = 0.5}));
  EXPECT_EQ(numbers.optimizer_kind, OptimizerKind::adamw);
  EXPECT_EQ(numbers.lr, 0.001);
  EXPECT_EQ(parsed({"--task", "regression", "--optimizer", "sgd"}).lr, 0.5);
  const TrainerConfig as_in_recipe =
      parsed({"--task", "regression", "--label-smoothing", "0", "--class-weights", "none"});
  EXPECT_EQ(as_in_recipe.label_smoothing, 0) << "which the recipe of such a run says";
  EXPECT_EQ(parsed({"--task", "multilabel", "--label-smoothing", "0.2"}).label_smoothing, 0.2);
  EXPECT_EQ(parsed({"--monitor", "val_mAP"}).early_stop->goal_or_default(), Goal::maximum);
  EXPECT_EQ(parsed({"--monitor", "val_mae"}).early_stop->goal_or_default(), Goal::minimum);
  const auto refused = [&](const std::vector<const char*>& flags) {
    return test::message_of<ArgumentError>([&] { parsed(flags); });
  };
  EXPECT_TRUE(test::names(refused({"--task", "segment"}), {"--task", "multilabel", "'segment'"}));
  EXPECT_TRUE(test::names(refused({"--loss", "mse"}), {"--loss", "cross-entropy or bce or focal", "mse"}));
  EXPECT_TRUE(test::names(refused({"--task", "regression", "--loss", "bce"}), {"mse or l1 or huber", "bce"}));
  EXPECT_TRUE(test::names(refused({"--task", "regression", "--label-smoothing", "0.1"}),
                          {"--label-smoothing", "--task regression"}));
  const std::string mixed = refused({"--task", "regression", "--augment", "flip,mixup"});
  EXPECT_TRUE(test::names(mixed, {"--augment", "mixup", "--task regression"}));
  EXPECT_EQ(mixed.find("program"), mixed.npos) << "which is not at fault";
  EXPECT_TRUE(test::names(refused({"--loss", "bce:2"}), {"--loss", "no number", "'bce:2'"}));
  EXPECT_TRUE(test::names(refused({"--loss", "focal:1:2"}), {"--loss", "ALPHA", "2"}));
}

TEST(Flags, FreezeMayBeGivenSeveralTimes) {
  const auto config = parse({"--freeze", "layer1", "--freeze", "layer2.0:3", "--freeze=fc:1"});
  ASSERT_EQ(config.freeze.size(), 3u);
  EXPECT_EQ(config.freeze[0].epochs, Freeze::kAlways);
  EXPECT_EQ(config.freeze[1].prefix, "layer2.0");
  EXPECT_EQ(config.freeze[1].epochs, 3);
}

TEST(Flags, MonitorKeepsTheBestWeightsAndNeverStops) {
  const TrainerConfig config = parse({"--monitor", "val_accuracy"});
  ASSERT_TRUE(config.early_stop);
  EXPECT_EQ(config.early_stop->metric, "val_accuracy");
  EXPECT_EQ(config.early_stop->patience, EarlyStop::kNever);
  EXPECT_EQ(config.early_stop->goal_or_default(), Goal::maximum);
  EXPECT_EQ(parse({"--monitor", "val_psnr:max"}).early_stop->goal, Goal::maximum);
  const TrainerConfig both = parse({"--monitor", "val_accuracy", "--early-stop", "val_loss:3"});
  ASSERT_TRUE(both.early_stop && both.monitor);
  EXPECT_EQ(both.early_stop->patience, 3);
  EXPECT_EQ(both.monitor->metric, "val_accuracy");
  EXPECT_FALSE(parse({"--monitor", "val_loss", "--early-stop", "val_loss:3"}).monitor);
}

// It leaves its answer alone, wherever a run would leave things.
TEST(Flags, AFinderWritesOnlyItsAnswer) {
  const TrainerConfig config = parse({"--find-lr", "--run-dir", "there", "--checkpoint-every", "5",
                                      "--save-top-k", "2", "--monitor", "val_loss", "--metrics", "m.jsonl"});
  EXPECT_EQ(config.question, Question::learning_rate);
  EXPECT_EQ(config.lr_curve, "there/lr_curve.svg");
  EXPECT_TRUE(config.run_dir.empty() && config.run_root.empty() && config.metrics.empty() &&
              config.checkpoint_dir.empty());
  EXPECT_EQ(parse({"--find-lr"}).lr_curve, "");
  EXPECT_EQ(parse({"--find-lr", "--lr-curve", "c.svg"}).lr_curve, "c.svg");
  EXPECT_EQ(parse({"--find-batch-size"}).question, Question::batch_size);
}

TEST(Flags, RunsGetAFolderBelowRunsByDefault) {
  ASSERT_TRUE(test::no_runs);
  unsetenv("ATHANOR_RUNS_DIR");
  EXPECT_EQ(parse({}).run_root, "runs/train");
  EXPECT_EQ(parse({"--resume", "auto"}).run_root, "runs/train");
  EXPECT_EQ(parse({"--fast-dev-run"}).run_root, "");
  EXPECT_EQ(parse({"--run-dir", "none"}).run_root, "");
  const TrainerConfig named = parse({"--run-dir", "mine"});
  EXPECT_EQ(named.run_root, "");
  EXPECT_EQ(named.run_dir, "mine");
  EXPECT_EQ(named.metrics, "mine/metrics.jsonl");
  setenv("ATHANOR_RUNS_DIR", "/elsewhere", 1);
  EXPECT_EQ(parse({}).run_root, "/elsewhere/train");
  setenv("ATHANOR_RUNS_DIR", "none", 1);
  EXPECT_EQ(parse({}).run_root, "");
}

TEST(Flags, EachIsStoredWithItsSource) {
  setenv("ATHANOR_DATA_DIR", "/from/env", 1);
  const TrainerConfig config = parse({"--deterministic", "--max-epochs", "8", "--freeze=a", "--freeze=b:2"});
  const auto flag = [&](const std::string& name) {
    const auto at = std::find_if(config.flags.begin(), config.flags.end(),
                                 [&](const FlagValue& one) { return one.name == name; });
    return at == config.flags.end() ? std::string("none") : at->value + " by " + at->from;
  };
  EXPECT_EQ(flag("--epochs"), "8 by flag") << "under its first name";
  EXPECT_EQ(flag("--deterministic"), "true by flag");
  EXPECT_EQ(flag("--freeze"), "a b:2 by flag");
  EXPECT_EQ(flag("--sync-bn"), "false by default");
  EXPECT_EQ(flag("--data-dir"), "/from/env by ATHANOR_DATA_DIR");
  EXPECT_EQ(config.data_dir, "/from/env");
  EXPECT_EQ(parse({"--data-dir", "/from/flag"}).data_dir, "/from/flag");
  EXPECT_EQ(flag("--precision"), "f32 by default");
  EXPECT_EQ(flag("--max-steps"), "no limit by default");
  EXPECT_EQ(flag("--dist-timeout"), "300 by default");
  unsetenv("ATHANOR_DATA_DIR");
  EXPECT_EQ(parse({}).data_dir, "data-cache");
}

TEST(Flags, ComparingCallsComesFromTheEnvironment) {
  for (const auto& [value, wanted] : {std::pair{"", false}, {"0", false}, {"1", true}}) {
    setenv("ATHANOR_DIST_DEBUG", value, 1);
    EXPECT_EQ(parse({}).collectives.compare_calls, wanted) << value;
  }
  setenv("ATHANOR_DIST_DEBUG", "yes", 1);
  EXPECT_FALSE(TrainerConfig().collectives.compare_calls);  // made before anybody catches what goes wrong
  EXPECT_ERROR(ArgumentError, parse({}), "ATHANOR_DIST_DEBUG", "0", "1", "'yes'");
  unsetenv("ATHANOR_DIST_DEBUG");
}

}  // namespace athanor::flags_test
