// What a program adds of its own: flags, models, pictures, and the folder that a run has.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/creation.h"
#include "data/image/png.h"
#include "dist/transports/thread_transport.h"
#include "nn/flatten.h"
#include "nn/models/model.h"
#include "nn/sequential.h"
#include "tests/support/errors.h"
#include "tests/support/files_in.h"
#include "tests/support/small_tasks.h"
#include "tests/support/temp_dir.h"
#include "trainer/flags/flags.h"
#include "trainer/samples.h"

namespace athanor::own_program_test {

namespace fs = std::filesystem;
using test::adam_config;
using test::Autoencoder;
using test::files_in;
using test::train;

TrainerConfig parse(const Flags& own, std::vector<const char*> arguments, TrainerConfig defaults = {}) {
  arguments.insert(arguments.begin(), "program");
  return parse_flags(static_cast<int>(arguments.size()), arguments.data(), std::move(defaults), own);
}

// Flags
// ------------------------------------------------------------------------------------------------------

struct Given {
  std::int64_t count = 3;
  double temperature = 4;
  float share = 0.5f;
  bool verbose = false;
  std::string name = "small";
  fs::path out;
  Flags flags;
  Given() {
    flags.add("--count N", count, "how many [{}]");
    flags.add("--temperature T", temperature, "of both softmaxes [{}]");
    flags.add("--share S", share, "of it");
    flags.add("--verbose", verbose, "says more");
    flags.add("--size NAME", name, "small or large [{}]", {"small", "large"});
    flags.add("--out FILE", out, "where to");
  }
};

TEST(OwnFlags, AreReadBesideTheOthers) {
  Given given;
  const TrainerConfig config =
      parse(given.flags, {"--temperature=2.5", "--epochs", "7", "--verbose", "--size", "large", "--count",
                          "-4", "--share", "0.25", "--out", "there"});
  EXPECT_EQ(config.epochs, 7);
  EXPECT_EQ(given.count, -4);
  EXPECT_EQ(given.temperature, 2.5);
  EXPECT_EQ(given.share, 0.25f);
  EXPECT_TRUE(given.verbose);
  EXPECT_EQ(given.name, "large");
  EXPECT_EQ(given.out, "there");
  ASSERT_EQ(config.own_flags.size(), 5u) << "a path may differ";
  EXPECT_EQ(config.own_flags[1].name, "--temperature");
  EXPECT_EQ(config.own_flags[1].value, "2.5");
}

TEST(OwnFlags, AreListedUnderTheProgramsName) {
  Given given;
  std::string help;
  try {
    (void)parse(given.flags, {"--help"}, {.program = "distill"});
  } catch (const HelpRequested& asked) {
    help = asked.what();
  }
  const std::size_t heading = help.find("\ndistill:"), flag = help.find("--temperature T");
  EXPECT_NE(heading, std::string::npos) << help;
  EXPECT_GT(flag, heading);
  EXPECT_NE(help.find("of both softmaxes [4]"), std::string::npos) << help;
}

TEST(OwnFlags, MistakesAreOneLine) {
  Given given;
  const auto of = [&](const char* flag, const char* value) { return parse(given.flags, {flag, value}); };
  EXPECT_ERROR(ArgumentError, of("--temperature", "hot"), "--temperature", "'hot'");
  EXPECT_ERROR(ArgumentError, of("--temperature", "inf"), "--temperature", "inf");
  EXPECT_ERROR(ArgumentError, of("--count", "1.5"), "--count", "'1.5'");
  EXPECT_ERROR(ArgumentError, of("--share", "1e60"), "--share", "f32", "1e60");
  EXPECT_ERROR(ArgumentError, of("--size", "larg"), "--size", "small", "large", "'larg'", "'large'");
  EXPECT_ERROR(ArgumentError, of("--temprature", "2"), "'--temprature'", "'--temperature'");
  Flags twice;
  double value = 0;
  twice.add("--value X", value, "");
  EXPECT_ERROR(ArgumentError, twice.add("--value X", value, ""), "flags", "--value");
  EXPECT_ERROR(ArgumentError, twice.add("value X", value, ""), "flags", "'value'");
  EXPECT_ERROR(ArgumentError, twice.add("--other", value, ""), "flags", "'--other'", "--help");
  bool on = false;
  EXPECT_ERROR(ArgumentError, twice.add("--on X", on, ""), "flags", "'--on X'");
  for (const char* const ours : {"--epochs N", "--max-epochs N", "--help N"}) {
    Flags clash;
    clash.add(ours, value, "");
    const std::string name = std::string(ours).substr(0, std::string(ours).find(' '));
    EXPECT_ERROR(ArgumentError, parse(clash, {}, {.program = "distill"}), "flags", name, "distill");
  }
}

TEST(OwnFlags, AreSettingsOfTheRun) {
  const test::TempDir folder;
  TrainerConfig config = adam_config();
  config.checkpoint_dir = folder / "saved";
  config.own_flags = {{"--temperature", "4"}};
  Autoencoder task;
  (void)train(task, config);
  config.resume = "auto";
  Autoencoder same;
  (void)train(same, config);
  config.own_flags = {{"--temperature", "2"}};
  Autoencoder other;
  EXPECT_ERROR(ArgumentError, train(other, config), "--resume", "--temperature", "2", "4");
  config.checkpoint_dir.clear();
  config.resume.clear();
  std::vector<std::string> messages(2);
  dist::run_ranks(2, [&](dist::Transport& transport) {
    TrainerConfig mine = config;
    mine.own_flags[0].value = std::to_string(transport.rank());
    Autoencoder one;
    messages[static_cast<std::size_t>(transport.rank())] =
        test::message_of([&] { (void)train(one, mine, &transport); });
  });
  for (const std::string& message : messages)
    EXPECT_TRUE(test::names(message, {"rank 1", "rank 0", "own.temperature", "'1'", "'0'"}));
}

// Models
// -----------------------------------------------------------------------------------------------------

TEST(OwnModels, AreKnownByName) {
  nn::register_model(
      "own_test_net",
      [](const nn::ModelOptions& options) {
        auto net = std::make_unique<nn::Sequential>();
        net->add<nn::Flatten>();
        net->add<nn::Linear>(options.image_size * options.image_size * options.in_channels, options.classes);
        return net;
      },
      {5, 1, 4}, 2);
  const auto net = nn::make_model("own_test_net", {.classes = 3}, 1);
  EXPECT_EQ((*net)(Tensor::zeros({2, 4, 4, 1})).shape(), (Shape{2, 3}));
  EXPECT_EQ(nn::model_names().back(), "own_test_net");
  EXPECT_ERROR(ArgumentError, nn::make_model("own_test_net", {.image_size = 1}, 1), "own_test_net", "2", "1");
  EXPECT_ERROR(ArgumentError, nn::make_model("own_test_nett", {}, 1), "model", "'own_test_nett'",
               "'own_test_net'");
  const nn::ModelFactory none = [](const nn::ModelOptions&) { return nullptr; };
  EXPECT_ERROR(ArgumentError, nn::register_model("own_test_net", none), "register_model", "'own_test_net'");
  EXPECT_ERROR(ArgumentError, nn::register_model("resnet18", none), "register_model", "'resnet18'");
  EXPECT_ERROR(ArgumentError, nn::register_model("a b", none), "register_model", "'a b'");
  EXPECT_ERROR(ArgumentError, nn::register_model("nothing", nullptr), "register_model", "'nothing'");

  TrainerConfig config;
  config.models = nn::model_names();
  config.model = "lenet5";
  EXPECT_EQ(parse({}, {"--model", "own_test_net"}, config).model, "own_test_net");
  try {
    (void)parse({}, {"--help"}, config);
    FAIL();
  } catch (const HelpRequested& help) {
    EXPECT_NE(std::string(help.what()).find("own_test_net"), std::string::npos);
  }
}

// Pictures
// ---------------------------------------------------------------------------------------------------

TEST(Samples, AGridMatchesItsTensor) {
  const Tensor images =
      Tensor::from(std::vector<float>{-1, 0, 1, 3, -7, 0.5f, NAN, 1, -1, -1, -1, -1}, {3, 2, 2, 1});
  const GridPixels grid = draw_grid(images, {.low = -1, .high = 1, .columns = 2});
  EXPECT_EQ(grid.channels, 1);
  EXPECT_EQ(grid.height, 10);
  EXPECT_EQ(grid.width, 10);
  const auto at = [&](int y, int x) { return grid.pixels[static_cast<std::size_t>(y * 10 + x)]; };
  EXPECT_EQ(at(2, 2), 0);
  EXPECT_EQ(at(2, 3), 128);
  EXPECT_EQ(at(3, 2), 255);
  EXPECT_EQ(at(3, 3), 255) << "cut off";
  EXPECT_EQ(at(2, 6), 0);
  EXPECT_EQ(at(2, 7), 191);
  EXPECT_EQ(at(3, 6), 0) << "no number";
  EXPECT_EQ(at(3, 7), 255);
  EXPECT_EQ(at(6, 6), 0) << "there is no fourth";
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16})
    EXPECT_EQ(draw_grid(cast(images, dtype), {.low = -1, .columns = 2}).pixels, grid.pixels);
  const GridPixels colour = draw_grid(Tensor::zeros({5, 3, 4, 3}), {.columns = 8, .at_most = 4});
  EXPECT_EQ(colour.width, 4 * 6 + 2);
  EXPECT_EQ(colour.height, 3 + 4);
  EXPECT_EQ(colour.pixels.size(), static_cast<std::size_t>(26 * 7 * 3));
}

struct Painter : Autoencoder {
  std::string name = "samples";
  bool in_training = false;
  Tensor training_step(const Batch& batch, Step& step) override {
    if (in_training) step.images(name, batch["image"]);
    return error(batch);
  }
  void validation_step(const Batch& batch, Step& step) override {
    step.log("loss", error(batch));
    step.images(name, step.randn({batch.size(), 4, 4, 1}), {.low = -3, .high = 3});
  }
};

std::vector<std::byte> bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(Samples, ARunsFolderHasThemAndAllElse) {
  const test::TempDir folder;
  TrainerConfig config = adam_config();
  config.epochs = 2;
  config.val_batch_size = 20;
  config.run_dir = folder / "run";
  Painter task;
  (void)train(task, config);
  EXPECT_EQ(files_in(config.run_dir),
            (std::vector<std::string>{"checkpoints/step-00000010.safetensors",
                                      "checkpoints/step-00000020.safetensors", "metrics.jsonl",
                                      "model.safetensors", "report.html", "samples/epoch_0001_samples.png",
                                      "samples/epoch_0002_samples.png"}));
  const fs::path last = config.run_dir / "samples/epoch_0002_samples.png";
  const std::vector<std::byte> png = bytes_of(last);
  PngDecoder decoder;
  EXPECT_EQ(decoder.open(png), (ImageSize{3 * 6 + 2, 8 * 6 + 2})) << "20 images, of the first batch";
  EXPECT_EQ(bytes_of(config.run_dir / "samples/epoch_0001_samples.png"), png)
      << "drawn as in every validation";

  // A run that goes on writes the same, and ranks write what rank 0 has.
  fs::remove(last);
  fs::remove(config.run_dir / "checkpoints/step-00000020.safetensors");
  config.resume = "auto";
  Painter again;
  (void)train(again, config);
  EXPECT_EQ(bytes_of(last), png);
  config.resume.clear();
  dist::run_ranks(2, [&](dist::Transport& transport) {
    TrainerConfig mine = config;
    mine.run_dir = folder / (transport.rank() == 0 ? "first" : "second");
    Painter one;
    (void)train(one, mine, &transport);
  });
  EXPECT_EQ(files_in(folder / "first").size(), 7u);
  EXPECT_FALSE(fs::exists(folder / "second")) << "rank 0 alone writes";
  const std::vector<std::byte> half = bytes_of(folder / "first/samples/epoch_0002_samples.png");
  EXPECT_EQ(decoder.open(half), (ImageSize{2 * 6 + 2, 8 * 6 + 2})) << "its ten";
}

TEST(Samples, WhatAKilledRunLeftHalfWrittenIsRemoved) {
  const test::TempDir folder;
  TrainerConfig config = adam_config();
  config.run_dir = folder / "run";
  const auto samples = config.run_dir / "samples";
  fs::create_directories(samples);
  std::ofstream(samples / "epoch_0001_samples.png.24042-6.tmp") << "half";
  std::ofstream(samples / "mine.tmp") << "of somebody else";
  Painter task;
  (void)train(task, config);
  EXPECT_FALSE(fs::exists(samples / "epoch_0001_samples.png.24042-6.tmp"));
  EXPECT_TRUE(fs::exists(samples / "mine.tmp"));
  EXPECT_TRUE(fs::exists(samples / "epoch_0001_samples.png"));
}

TEST(Samples, AFullDiskIsOneWarning) {
  const test::TempDir folder;
  TrainerConfig config = adam_config();
  config.run_dir = folder / "run";
  fs::create_directories(config.run_dir);
  std::ofstream(config.run_dir / "samples") << "no folder";
  Painter task;
  const test::RecordedRun run = train(task, config);
  EXPECT_EQ(run.report.stopped_by, StoppedBy::epochs);
  ASSERT_EQ(run.notes.size(), 1u) << run.notes.back();
  EXPECT_TRUE(test::names(run.notes[0], {"warning"}));
  EXPECT_NE(run.notes[0].find("samples/epoch_0001_samples.png"), std::string::npos) << run.notes[0];
}

TEST(Samples, MistakesAreErrorsWithoutAFolderToo) {
  Painter training;
  training.in_training = true;
  EXPECT_ERROR(ArgumentError, train(training, adam_config()), "images", "'samples'");
  Painter named;
  named.name = "a/b";
  EXPECT_ERROR(ArgumentError, train(named, adam_config()), "images", "'a/b'");
  EXPECT_ERROR(ArgumentError, draw_grid(Tensor::zeros({2, 3, 3, 2}), {}), "images", "'grid'",
               "f32 [2, 3, 3, 2]");
  EXPECT_ERROR(ArgumentError, draw_grid(Tensor::zeros({2, 3, 3, 1}), {.low = 1, .high = 1}), "images",
               "'grid'", "[1, 1]");
}

}  // namespace athanor::own_program_test
