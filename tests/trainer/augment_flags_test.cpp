// --augment LIST: what it reads, what it refuses, and what a run makes of it.
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/small_training.h"
#include "trainer/flags/detail/read_flag.h"

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

TEST(AugmentFlag, ReadsEveryItemInsteadOfTheDefault) {
  const std::pair<const char*, Augment> items[]{
      {"none", {}},
      {"crop:4", {.pad = 4}},
      {"crop:4:reflect", {.pad = 4, .padding = Padding::reflect}},
      {"resized-crop", {.resized_crop = RandomResizedCrop{}}},
      {"resized-crop:0.2", {.resized_crop = RandomResizedCrop{.min_area = 0.2}}},
      {"flip", {.flip = true}},
      {"alternating-flip", {.flip = true, .alternate_flip = true}},
      {"color-jitter", {.colour = {0.4f, 0.4f, 0.4f, 0.1f}}},
      {"color-jitter:0.1:0.2:0.3:0.4", {.colour = {0.1f, 0.2f, 0.3f, 0.4f}}},
      {"rand-augment", {.rand_augment = RandAugment{2, 9}}},
      {"rand-augment:3:12", {.rand_augment = RandAugment{3, 12}}},
      {"vertical-flip", {.vertical_flip = true}},
      {"trivial-augment", {.trivial_augment = true}},
      {"rotation:30", {.rotation = 30}},
      {"blur", {.blur = 0.5f}},
      {"blur:0.25", {.blur = 0.25f}},
      {"random-erasing", {.random_erasing = 0.25f}},
      {"random-erasing:0.5", {.random_erasing = 0.5f}},
      {"cutout:16", {.cutout = 16}},
      {"mixup", {.mixup = 0.2}},
      {"flip,mixup:0,cutmix:0.0,crop:0,rotation:0,blur:0,random-erasing:0,cutout:0", {.flip = true}},
      {"crop:0:reflect,resized-crop", {.resized_crop = RandomResizedCrop{}}},
      {"mixup:0.4,cutmix", {.mixup = 0.4, .cutmix = 1}},
      {"flip,crop:2,cutmix:0.5", {.pad = 2, .flip = true, .cutmix = 0.5}}};
  for (const auto& [list, augment] : items) {
    EXPECT_EQ(read(list), augment) << list;
    EXPECT_EQ(read(text(augment)), augment) << "as printed: " << text(augment);
  }
}

TEST(AugmentFlag, PrintsItsDefaultInInputForm) {
  const auto value = [](const TrainerConfig& config) {
    for (const FlagValue& flag : config.flags)
      if (flag.name == "--augment") return flag.value + " by " + flag.from;
    return std::string("missing");
  };
  const std::string list = "crop:2:reflect,color-jitter:0.1:0.2:0.3:0.4";
  EXPECT_EQ(value(parse({}, read(list))), list + " by default");
  EXPECT_EQ(value(parse({"--augment", "flip"})), "flip by flag");
  std::string help = test::message_of<HelpRequested>([&] { parse({"--help"}, read(list)); });
  std::erase_if(help, [](char c) { return c == '\n' || c == ' '; });
  EXPECT_NE(help.find("ornone[" + list + "]"), std::string::npos) << help;
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
           {"crop:-1", {"--augment crop:-1", "1", "-1"}},
           {"flip:1", {"--augment flip:1"}},
           {"resized-crop:2", {"--augment resized-crop:2", "0.001", "1", "2"}},
           {"color-jitter:0.4", {jitter}},
           {"color-jitter:0.4:0.4:0.4:0.6", {"0.5", "0.6"}},
           {"rand-augment:2", {rand}},
           {"rand-augment:0:9", {"1", "0"}},
           {"rand-augment:2:31", {"30", "31"}},
           {"rotation", {"--augment rotation", "rotation:DEGREES"}},
           {"rotation:200", {"180", "200"}},
           {"blur:2", {"1e-06", "2"}},
           {"rand-augment,trivial-augment", {"rand-augment", "trivial-augment"}},
           {"random-erasing:1.5", {"1e-06", "1", "1.5"}},
           {"mixup:2000", {"--augment mixup:2000", "0.001", "1000"}},
           {"resized-crop:0", {"--augment resized-crop:0", "0.001"}},
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
        "rand-augment:2:20", "vertical-flip", "trivial-augment", "rotation:30", "blur:1",
        "random-erasing:0.9", "cutout:2", "mixup", "mixup:1", "cutmix"}) {
    all.push_back(hash(list));
    for (std::size_t i = 0; i + 1 < all.size(); ++i) EXPECT_NE(all.back(), all[i]) << list;
  }
  EXPECT_EQ(hash("none"), none);
  EXPECT_ERROR(ArgumentError, hash("color-jitter"), "preprocess", "color-jitter", "3", "1");
  EXPECT_ERROR(ArgumentError, hash("crop:4"), "preprocess", "[0, 4)", "4");
}

// The data set of the program crops, whichever augmentation the user chooses.
TEST(AugmentFlag, KeepsThatTheProgramCropsWhileItDecodes) {
  const Augment usual{.flip = true, .resized_crop = RandomResizedCrop{}, .crops_when_decoded = true};
  EXPECT_EQ(parse({"--augment", "resized-crop,flip"}, usual).augment, usual);
  EXPECT_TRUE(parse({"--augment", "flip"}, usual).augment.crops_when_decoded);
}

}  // namespace athanor::augment_flags_test
