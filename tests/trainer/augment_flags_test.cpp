// --augment LIST: what it reads, what it refuses, and what a run makes of it.
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/resumed_run.h"
#include "tests/support/small_training.h"

namespace athanor::augment_flags_test {

// Tests make no folders.
const bool no_runs = ::setenv("ATHANOR_RUNS_DIR", "none", 1) == 0;

TrainerConfig parse(const std::vector<std::string>& arguments, const Augment& usual = {}) {
  std::vector<const char*> argv{"train"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  TrainerConfig defaults;
  defaults.program = "train";
  defaults.augment = usual;
  return parse_flags(static_cast<int>(argv.size()), argv.data(), defaults);
}

Augment read(const std::string& list) {
  return parse({"--augment", list}, {.pad = 3, .flip = true, .cutout = 5}).augment;
}

std::string refusal(const std::string& list) {
  return test::message_of([&] { read(list); });
}

std::string value_in_config(const TrainerConfig& config) {
  for (const FlagValue& flag : config.flags) {
    if (flag.name == "--augment") return flag.value + " by " + flag.from;
  }
  return "missing";
}

TEST(AugmentFlag, ReadsEveryItemInsteadOfTheDefault) {
  EXPECT_EQ(read("none"), Augment{});
  EXPECT_EQ(read("crop:4"), Augment{.pad = 4});
  EXPECT_EQ(read("crop:4:reflect"), (Augment{.pad = 4, .padding = Padding::reflect}));
  EXPECT_EQ(read("resized-crop"), Augment{.resized_crop = RandomResizedCrop{}});
  EXPECT_EQ(read("resized-crop:0.2"), (Augment{.resized_crop = RandomResizedCrop{.min_area = 0.2}}));
  EXPECT_EQ(read("flip"), Augment{.flip = true});
  EXPECT_EQ(read("alternating-flip"), (Augment{.flip = true, .alternate_flip = true}));
  EXPECT_EQ(read("color-jitter"), (Augment{.colour = {0.4f, 0.4f, 0.4f, 0.1f}}));
  EXPECT_EQ(read("color-jitter:0.1:0.2:0.3:0.4"), (Augment{.colour = {0.1f, 0.2f, 0.3f, 0.4f}}));
  EXPECT_EQ(read("rand-augment"), (Augment{.rand_augment = RandAugment{2, 9}}));
  EXPECT_EQ(read("rand-augment:3:12"), (Augment{.rand_augment = RandAugment{3, 12}}));
  EXPECT_EQ(read("random-erasing"), (Augment{.random_erasing = 0.25f}));
  EXPECT_EQ(read("random-erasing:0.5"), (Augment{.random_erasing = 0.5f}));
  EXPECT_EQ(read("cutout:16"), Augment{.cutout = 16});
  EXPECT_EQ(read("mixup"), Augment{.mixup = 0.2});
  EXPECT_EQ(read("mixup:0.4,cutmix"), (Augment{.mixup = 0.4, .cutmix = 1}));
  EXPECT_EQ(read("flip,crop:2,cutmix:0.5"), (Augment{.pad = 2, .flip = true, .cutmix = 0.5}));
}

TEST(AugmentFlag, PrintsItsDefaultInInputForm) {
  for (const std::string list :
       {"none", "crop:2:reflect,flip", "resized-crop,alternating-flip,color-jitter", "resized-crop:0.2",
        "color-jitter:0.1:0.2:0.3:0.4,rand-augment:2:9,random-erasing:0.25,mixup:0.2,cutmix:1",
        "crop:4,cutout:8"}) {
    const TrainerConfig config = parse({}, read(list));
    EXPECT_EQ(value_in_config(config), list + " by default");
    EXPECT_EQ(config.augment, read(list));
    try {
      parse({"--help"}, read(list));
      ADD_FAILURE();
    } catch (const HelpRequested& help) {
      std::string text = help.what();
      std::erase_if(text, [](char c) { return c == '\n' || c == ' '; });
      EXPECT_NE(text.find("ornone[" + list + "]"), std::string::npos) << help.what();
    }
  }
  EXPECT_EQ(value_in_config(parse({"--augment", "flip"})), "flip by flag");
}

TEST(AugmentFlag, RejectsInOneLine) {
  struct Case {
    const char* list;
    std::vector<std::string> values;
  };
  const std::string crop = "crop:PIXELS:reflect", jitter = "color-jitter:BRIGHTNESS:CONTRAST:SATURATION:HUE",
                    rand = "rand-augment:OPERATIONS:MAGNITUDE";
  for (const auto& [list, values] : std::vector<Case>{
           {"flips", {"none", "crop", "resized-crop", "'flips'", "'flip'"}},
           {"rand_augment", {"'rand_augment'", "'rand-augment'"}},
           {"", {"''"}},
           {"flip,", {"''"}},
           {"none,flip", {"none"}},
           {"flip,none", {"none"}},
           {"crop", {"--augment crop", "crop:PIXELS", crop}},
           {"crop:4:mirror", {"--augment crop:4:mirror", "crop:PIXELS", crop}},
           {"crop:x", {"--augment crop:x", "'x'"}},
           {"crop:0", {"--augment crop:0", "1", "0"}},
           {"flip:1", {"--augment flip:1"}},
           {"resized-crop:2", {"--augment resized-crop:2", "0.001", "1", "2"}},
           {"color-jitter:0.4", {jitter}},
           {"color-jitter:0.4:0.4:0.4:0.6", {"0.5", "0.6"}},
           {"rand-augment:2", {rand}},
           {"rand-augment:0:9", {"1", "0"}},
           {"rand-augment:2:31", {"30", "31"}},
           {"random-erasing:1.5", {"1e-06", "1", "1.5"}},
           {"mixup:0", {"--augment mixup:0", "0.001", "1000", "0"}},
           {"mixup:nan", {"--augment mixup:nan", "nan"}},
           {"cutmix:x", {"--augment cutmix:x", "'x'"}},
           {"flip,crop:2,flip", {"flip", "'flip,crop:2,flip'"}},
           {"crop:2,resized-crop", {"crop", "resized-crop", "'crop:2,resized-crop'"}},
           {"flip,alternating-flip", {"flip", "alternating-flip", "'flip,alternating-flip'"}},
           {"cutout:4,random-erasing", {"random-erasing", "cutout", "'cutout:4,random-erasing'"}}}) {
    EXPECT_TRUE(test::names(refusal(list), {"--augment"})) << list;
    EXPECT_TRUE(test::names(refusal(list), values)) << list;
  }
}

// Each item alone makes other weights than none; so would not one that is ignored.
TEST(AugmentFlag, ChangesTheTraining) {
  const auto hash = [](const std::string& list) {
    TrainerConfig config = test::small_config();
    config.augment = read(list);
    return test::run(config).report.weights_hash;
  };
  const std::uint64_t none = hash("none");
  std::vector<std::uint64_t> all{none};
  for (const char* const list :
       {"crop:1", "crop:1:reflect", "resized-crop", "flip", "alternating-flip", "rand-augment",
        "rand-augment:2:20", "random-erasing:0.9", "cutout:2", "mixup", "mixup:1", "cutmix"}) {
    all.push_back(hash(list));
    for (std::size_t i = 0; i + 1 < all.size(); ++i) EXPECT_NE(all.back(), all[i]) << list;
  }
  EXPECT_EQ(hash("none"), none);
  EXPECT_ERROR(ArgumentError, hash("color-jitter"), "preprocess", "color-jitter", "3", "1");
  EXPECT_ERROR(ArgumentError, hash("crop:4"), "preprocess", "[0, 4)", "4");
}

class AugmentResumed : public test::ResumeTest {};

// A program that crops while it decodes has always done so: its checkpoints go on.
TEST_F(AugmentResumed, DecodeTimeCropsOfTheProgramAreNoChange) {
  TrainerConfig config = test::resume_config();
  config.epochs = 1;
  config.augment = {.flip = true};
  test::train(saving(config, 2));
  config.augment = {.flip = true, .resized_crop = RandomResizedCrop{}, .crops_when_decoded = true};
  EXPECT_EQ(parse({"--augment", "resized-crop,flip"}, config.augment).augment, config.augment);
  EXPECT_NO_THROW(test::train(from(config, file(2).string())));
  config.augment = parse({"--augment", "flip"}, config.augment).augment;
  EXPECT_ERROR(ArgumentError, test::train(from(config, file(2).string())), "--resume", "--augment",
               "'pad 0, flip true, cutout 0, no resized crop'", "'pad 0, flip true, cutout 0'");
}

}  // namespace athanor::augment_flags_test
